//! Every key that there is. A new one is a line here and a field in `config.rs`.

use super::key::{Form, Key, Unless};

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name, as it stands in brackets.
    pub name: &'static str,
    /// What it is about.
    pub meaning: &'static str,
}

/// The tables, in the order in which they are told.
pub const SECTIONS: &[Section] = &[
    Section {
        name: "data",
        meaning: "Which rows are learnt from, and how they are read.",
    },
    Section {
        name: "model",
        meaning: "What learns. The models are a few lines each, in `python/vramfit/train/models/`.",
    },
    Section {
        name: "optimizer",
        meaning: "How it learns; all of it is optax.",
    },
    Section {
        name: "training",
        meaning: "How long, where, and what is told.",
    },
    Section {
        name: "checkpoint",
        meaning: "When the state is saved, so that a run can go on after a kill.",
    },
];

/// Returns every key, in the order in which they are told.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    [DATA, MODEL, OPTIMIZER, TRAINING, CHECKPOINT]
        .into_iter()
        .flatten()
}

const DATA: &[Key] = &[
    Key::new(
        "data",
        "path",
        Form::Path,
        Unless::Required("\"train.h5\""),
        "The HDF5 file.",
    )
    .also(&["file", "train", "filename"])
    .starts()
    .may_change(),
    Key::new(
        "data",
        "inputs",
        Form::Text("the path of a dataset"),
        Unless::Value("\"input_sequences\""),
        "The dataset that the model sees: rows of features, of sequences of them, or of tokens.",
    )
    .also(&["x", "features", "input"])
    .starts(),
    Key::new(
        "data",
        "targets",
        Form::Text("the path of a dataset"),
        Unless::Value("\"targets\""),
        "The dataset to predict. Floats are predicted with the mean squared error, integers are \
         labels, one a row, and are predicted with the cross-entropy. Where it is the dataset of the inputs, and that has \
         rows of integers, these are tokens, and the next one of each step is predicted.",
    )
    .also(&["y", "labels", "target"])
    .starts(),
    Key::new(
        "data",
        "validation_share",
        Form::Number("from 0, below 1", |share| (0.0..1.0).contains(&share)),
        Unless::Value("0.1"),
        "The part of the rows that is kept for validation, spread over the file; 0 for none.",
    )
    .also(&["validation_split", "val_split", "validation"]),
    Key::new(
        "data",
        "validation_path",
        Form::Path,
        Unless::Nothing("a part of the rows validates", "\"validation.h5\""),
        "Another file, with datasets of the same names, all of whose rows validate.",
    )
    .also(&["val", "validation_file"])
    .may_change(),
    Key::new(
        "data",
        "memory",
        Form::Bytes,
        Unless::Value("\"256MiB\""),
        "What reading may take, in all; validation takes as much again while it runs.",
    )
    .also(&["memory_limit", "budget"]),
    Key::new(
        "data",
        "batch_size",
        Form::Count(1),
        Unless::Value("256"),
        "Rows of a batch, all devices together.",
    )
    .starts(),
    Key::new(
        "data",
        "sequence_length",
        Form::Count(1),
        Unless::Nothing("whole sequences", "32"),
        "Only the last so many steps of each sequence; more than the file has is refused.",
    )
    .also(&["seq_len", "length", "window"]),
    Key::new(
        "data",
        "classes",
        Form::Count(2),
        Unless::Nothing("the largest label and one more", "10"),
        "How many classes integer targets have. All labels, those that validate too, are checked against it \
         before the run starts.",
    )
    .also(&["num_classes", "n_classes"]),
    Key::new(
        "data",
        "scale",
        Form::Factor,
        Unless::Nothing("inputs are taken as they are", "\"1/255\""),
        "What inputs are multiplied by, in float32 and on the device. Integers of up to 16 bits, such as the \
         pixels of images, travel there as they are, which is a half or a quarter of the bytes.",
    )
    .also(&["rescale", "normalize"]),
    Key::new(
        "data",
        "vocabulary",
        Form::Count(2),
        Unless::Nothing("integer inputs are numbers, unless `targets` is the same dataset", "1000"),
        "How many different tokens integer inputs have, counted from 0: each becomes a vector that is learnt. All tokens \
         are checked against it before the run starts. Where `targets` is the same dataset, the next token of each step is predicted.",
    )
    .also(&["vocab_size", "num_tokens", "vocab"]),
    Key::new(
        "data",
        "shuffle",
        Form::Flag,
        Unless::Value("true"),
        "Whether rows come in a random order, another in each epoch.",
    ),
    Key::new(
        "data",
        "seed",
        Form::Count(0),
        Unless::Value("0"),
        "Decides the order.",
    ),
];

const MODEL: &[Key] = &[
    Key::new(
        "model",
        "kind",
        Form::OneOf(&["mlp", "gru", "lstm", "transformer"]),
        Unless::Value("\"gru\""),
        "`mlp` sees a row as one list of numbers, of whatever shape; the others see a sequence of \
         steps.",
    )
    .also(&["name", "type", "model", "architecture"])
    .starts(),
    Key::new(
        "model",
        "hidden_sizes",
        Form::Counts,
        Unless::Value("[128]"),
        "The width of each layer, or one width for all.",
    )
    .also(&["hidden_dim", "units", "width", "d_model"])
    .starts(),
    Key::new(
        "model",
        "layers",
        Form::Count(1),
        Unless::Nothing("2, or as many as `hidden_sizes` has", "2"),
        "How many layers, where `hidden_sizes` has one width.",
    )
    .also(&["num_layers", "depth", "n_layers"]),
    Key::new(
        "model",
        "heads",
        Form::Count(1),
        Unless::Value("4"),
        "Attention heads of a transformer; they divide its width.",
    )
    .also(&["num_heads", "n_heads"]),
    Key::new(
        "model",
        "dropout",
        Form::Number("from 0, below 1", |share| (0.0..1.0).contains(&share)),
        Unless::Value("0.0"),
        "The part of each layer's outputs that is set to 0 in training.",
    ),
    Key::new(
        "model",
        "dtype",
        Form::OneOf(&["float32", "bfloat16"]),
        Unless::Value("\"float32\""),
        "What the layers compute in. Parameters, optimiser and loss stay float32.",
    )
    .also(&["precision"]),
];

const OPTIMIZER: &[Key] = &[
    Key::new(
        "optimizer",
        "name",
        Form::OneOf(&["adamw", "adam", "lion", "sgd"]),
        Unless::Value("\"adamw\""),
        "The rule by which parameters change.",
    )
    .also(&["kind", "type", "optimizer"]),
    Key::new(
        "optimizer",
        "learning_rate",
        Form::Number("above 0", |rate| rate > 0.0),
        Unless::Value("0.001"),
        "How far a step goes; the highest rate, where there is a schedule.",
    )
    .also(&["lr"])
    .starts(),
    Key::new(
        "optimizer",
        "schedule",
        Form::OneOf(&["constant", "cosine", "warmup_cosine"]),
        Unless::Value("\"constant\""),
        "How the rate changes: not at all, down to 0 at the last step, or up from 0 first. The last \
         step is that of `training.epochs`.",
    )
    .also(&["lr_schedule", "scheduler"]),
    Key::new(
        "optimizer",
        "warmup_steps",
        Form::Count(1),
        Unless::Nothing("for `warmup_cosine` it has to be there", "100"),
        "Steps until the rate is reached, with `warmup_cosine`.",
    )
    .also(&["warmup"]),
    Key::new(
        "optimizer",
        "weight_decay",
        Form::Number("from 0", |decay| decay >= 0.0),
        Unless::Value("0.0"),
        "How much parameters shrink by themselves, with `adamw` and `lion`.",
    )
    .also(&["decay", "wd"]),
    Key::new(
        "optimizer",
        "momentum",
        Form::Number("from 0, below 1", |part| (0.0..1.0).contains(&part)),
        Unless::Value("0.9"),
        "How much of the last step goes into the next, with `sgd`.",
    ),
    Key::new(
        "optimizer",
        "clip",
        Form::Number("above 0", |norm| norm > 0.0),
        Unless::Nothing("gradients are taken as they are", "1.0"),
        "The largest norm of all gradients together; larger ones are scaled down to it.",
    )
    .also(&["grad_clip", "gradient_clip", "max_grad_norm"]),
    Key::new(
        "optimizer",
        "accumulate",
        Form::Count(1),
        Unless::Value("1"),
        "Batches whose gradients are averaged before the parameters change once.",
    )
    .also(&["accumulation_steps", "grad_accum"]),
];

const TRAINING: &[Key] = &[
    Key::new(
        "training",
        "epochs",
        Form::Count(1),
        Unless::Value("10"),
        "How often all rows are gone through.",
    )
    .also(&["num_epochs", "n_epochs"])
    .starts()
    .may_change(),
    Key::new(
        "training",
        "seed",
        Form::Count(0),
        Unless::Value("0"),
        "Decides the first parameters, and what dropout leaves out.",
    ),
    Key::new(
        "training",
        "device",
        Form::OneOf(&["cpu", "gpu", "cuda", "cuda?", "metal"]),
        Unless::Nothing("what JAX takes", "\"cuda\""),
        "Where to compute. `cuda` (or `gpu`) is required, `cuda?` is taken if it is there, `metal` is \
         an experiment.",
    )
    .also(&["platform", "backend"])
    .may_change(),
    Key::new(
        "training",
        "directory",
        Form::Path,
        Unless::Nothing("`runs/` and the name of this file", "\"runs/first\""),
        "Where checkpoints, `metrics.jsonl` and `report.html` go.",
    )
    .also(&["output", "run_dir", "log_dir", "out"])
    .may_change(),
    Key::new(
        "training",
        "steps_per_dispatch",
        Form::Count(1),
        Unless::Value("1"),
        "Steps that are handed to the device at once, in one `lax.scan`: quicker where a step takes \
         less than a millisecond, and a loss is known only once for all of them.",
    )
    .also(&["steps_per_execution", "scan_steps"]),
    Key::new(
        "training",
        "log_every",
        Form::Count(1),
        Unless::Value("50"),
        "Steps between two lines in `metrics.jsonl`.",
    )
    .also(&["log_steps", "log_interval"])
    .may_change(),
    Key::new(
        "training",
        "stop_after",
        Form::Count(1),
        Unless::Nothing("all epochs are run", "5"),
        "Stop early, after so many epochs without a better validation loss.",
    )
    .also(&["patience", "early_stopping", "early_stop"])
    .may_change(),
    Key::new(
        "training",
        "stop_on_nan",
        Form::Flag,
        Unless::Value("true"),
        "Whether a loss that is not a number ends the run.",
    )
    .may_change(),
    Key::new(
        "training",
        "tensorboard",
        Form::Flag,
        Unless::Value("false"),
        "Whether curves for TensorBoard go into `tensorboard/` of the directory; needs the extra \
         `vramfit[tensorboard]`.",
    )
    .also(&["tb"])
    .may_change(),
];

const CHECKPOINT: &[Key] = &[
    Key::new(
        "checkpoint",
        "every_steps",
        Form::Count(1),
        Unless::Nothing("by time only", "1000"),
        "Steps between two checkpoints.",
    )
    .may_change(),
    Key::new(
        "checkpoint",
        "every_seconds",
        Form::Number("above 0", |seconds| seconds > 0.0),
        Unless::Value("600"),
        "Seconds between two checkpoints. There is one at the end of each run in any case.",
    )
    .also(&["every_minutes", "interval"])
    .may_change(),
    Key::new(
        "checkpoint",
        "keep_last",
        Form::Count(1),
        Unless::Value("2"),
        "How many of the last ones are kept.",
    )
    .also(&["max_to_keep", "keep"])
    .may_change(),
    Key::new(
        "checkpoint",
        "keep_best",
        Form::Count(0),
        Unless::Value("1"),
        "How many of those with the lowest validation loss are kept.",
    )
    .may_change(),
];
