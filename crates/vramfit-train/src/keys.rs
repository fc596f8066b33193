//! All keys. A new one is an entry here and a field in `config.rs`.

use super::key::{DefaultValue, Key, ValueType};

/// A table of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
}

/// The tables, in the order of the template.
pub const SECTIONS: &[Section] = &[
    Section { name: "data", description: "Training data." },
    Section {
        name: "model",
        description: "Model. The source of each is short: `python/vramfit/train/models/`.",
    },
    Section { name: "optimizer", description: "Optimizer, from optax." },
    Section { name: "training", description: "Training loop." },
    Section { name: "checkpoint", description: "Checkpoints, from which a run resumes." },
];

/// Returns all keys, in the order of the template.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    [DATA, MODEL, OPTIMIZER, TRAINING, CHECKPOINT].into_iter().flatten()
}

const DATA: &[Key] = &[
    Key::new(
        "data",
        "path",
        ValueType::Path,
        DefaultValue::Required("\"train.h5\""),
        "HDF5 file.",
    )
    .aliases(&["file", "train", "filename"])
    .in_template()
    .resumable(),
    Key::new(
        "data",
        "inputs",
        ValueType::String("the path of a dataset"),
        DefaultValue::Value("\"input_sequences\""),
        "Dataset of the inputs: rows of features, sequences of features, or tokens.",
    )
    .aliases(&["x", "features", "input"])
    .in_template(),
    Key::new(
        "data",
        "targets",
        ValueType::String("the path of a dataset"),
        DefaultValue::Value("\"targets\""),
        "Dataset of the targets. The loss is the mean squared error for floats, and the cross-entropy for \
         integers, which are labels, one per row. If it is the dataset of the inputs, and has rows of integers, \
         these are tokens, and the next token is predicted at each step.",
    )
    .aliases(&["y", "labels", "target"])
    .in_template(),
    Key::new(
        "data",
        "validation_fraction",
        ValueType::Number("of at least 0 and below 1", |share| (0.0..1.0).contains(&share)),
        DefaultValue::Value("0.1"),
        "Fraction of the rows used for validation, spread over the file; 0 for none.",
    )
    .aliases(&["validation_split", "val_split", "validation"]),
    Key::new(
        "data",
        "validation_path",
        ValueType::Path,
        DefaultValue::Unset("a fraction of the rows of `path`", "\"validation.h5\""),
        "Separate validation file, with datasets of the same names.",
    )
    .aliases(&["val", "validation_file"])
    .resumable(),
    Key::new(
        "data",
        "memory",
        ValueType::Bytes,
        DefaultValue::Value("\"256MiB\""),
        "Memory limit of the data loader; during validation there are two.",
    )
    .aliases(&["memory_limit", "budget"]),
    Key::new(
        "data",
        "batch_size",
        ValueType::Integer(1),
        DefaultValue::Value("256"),
        "Rows per batch, on all devices together.",
    )
    .in_template(),
    Key::new(
        "data",
        "sequence_length",
        ValueType::Integer(1),
        DefaultValue::Unset("whole sequences", "32"),
        "Number of steps to use of each sequence, from its end.",
    )
    .aliases(&["seq_len", "length", "window"]),
    Key::new(
        "data",
        "classes",
        ValueType::Integer(2),
        DefaultValue::Unset("one more than the largest label", "10"),
        "Number of classes of integer targets. All labels are checked against it before training starts.",
    )
    .aliases(&["num_classes", "n_classes"]),
    Key::new(
        "data",
        "scale",
        ValueType::Factor,
        DefaultValue::Unset("no scaling", "\"1/255\""),
        "Factor for the inputs, applied on the device in float32. Integers of up to 16 bits, such as \
         pixels, are transferred without conversion, which saves half or three quarters of the bytes.",
    )
    .aliases(&["rescale"]),
    Key::new(
        "data",
        "normalize",
        ValueType::Choice(&["inputs", "targets", "both"]),
        DefaultValue::Unset("no normalization", "\"both\""),
        "What to normalize, on the device: the mean of each feature (the last axis of a row) becomes 0 and its \
         standard deviation 1. Both are computed from the training rows before the run starts, and are part of \
         the model. Losses and predictions are those of the targets as they are in the file.",
    )
    .aliases(&["normalization", "standardize", "standardise"]),
    Key::new(
        "data",
        "vocabulary",
        ValueType::Integer(2),
        DefaultValue::Unset("integer inputs are numbers, unless `targets` is the same dataset", "1000"),
        "Number of different tokens of integer inputs, numbered from 0; each has a trained embedding. All tokens \
         are checked against it before training starts.",
    )
    .aliases(&["vocab_size", "num_tokens", "vocab"]),
    Key::new(
        "data",
        "shuffle",
        ValueType::Bool,
        DefaultValue::Value("true"),
        "Shuffle the rows, in a different order in each epoch.",
    ),
    Key::new(
        "data",
        "seed",
        ValueType::Integer(0),
        DefaultValue::Value("0"),
        "Seed of the row order.",
    ),
];

const MODEL: &[Key] = &[
    Key::new(
        "model",
        "kind",
        ValueType::ChoiceOrPython(
            &["mlp", "cnn", "gru", "lstm", "transformer"],
            "my_model.py:Net",
        ),
        DefaultValue::Value("\"gru\""),
        "Model architecture. `mlp` takes rows of any shape, flattened; `cnn` takes images; the others take \
         sequences. Your own is a class or function in a file beside this one, or in a module, that returns a \
         Flax (`nnx` or `linen`) or Equinox module.",
    )
    .aliases(&["name", "type", "model", "architecture"])
    .in_template(),
    Key::new(
        "model",
        "arguments",
        ValueType::Table,
        DefaultValue::Unset("none", "{ width = 64 }"),
        "Keyword arguments for a model of your own. `row_shape`, `outputs`, `vocabulary`, and `rngs` or `key` are \
         passed in addition, if it has parameters of these names.",
    )
    .aliases(&["args", "kwargs", "parameters"]),
    Key::new(
        "model",
        "hidden_sizes",
        ValueType::Integers,
        DefaultValue::Value("[128]"),
        "Width of each layer, or one width for all layers; for `cnn` the number of channels.",
    )
    .aliases(&["hidden_dim", "units", "width", "d_model"])
    .in_template(),
    Key::new(
        "model",
        "layers",
        ValueType::Integer(1),
        DefaultValue::Unset("2, or the length of `hidden_sizes`", "2"),
        "Number of layers, if `hidden_sizes` has one width.",
    )
    .aliases(&["num_layers", "depth", "n_layers"]),
    Key::new(
        "model",
        "heads",
        ValueType::Integer(1),
        DefaultValue::Value("4"),
        "Number of attention heads of a transformer; its width must be divisible by it.",
    )
    .aliases(&["num_heads", "n_heads"]),
    Key::new(
        "model",
        "dropout",
        ValueType::Number("of at least 0 and below 1", |share| (0.0..1.0).contains(&share)),
        DefaultValue::Value("0.0"),
        "Dropout probability.",
    ),
    Key::new(
        "model",
        "dtype",
        ValueType::Choice(&["float32", "bfloat16"]),
        DefaultValue::Value("\"float32\""),
        "Data type of computation. Parameters, optimizer state and loss are always float32.",
    )
    .aliases(&["precision"]),
];

const OPTIMIZER: &[Key] = &[
    Key::new(
        "optimizer",
        "name",
        ValueType::Choice(&["adamw", "adam", "lion", "sgd"]),
        DefaultValue::Value("\"adamw\""),
        "Optimizer.",
    )
    .aliases(&["kind", "type", "optimizer"]),
    Key::new(
        "optimizer",
        "learning_rate",
        ValueType::Number("above 0", |rate| rate > 0.0),
        DefaultValue::Value("0.001"),
        "Learning rate; the peak rate if a schedule is set.",
    )
    .aliases(&["lr"])
    .in_template(),
    Key::new(
        "optimizer",
        "schedule",
        ValueType::Choice(&["constant", "cosine", "warmup_cosine", "reduce_on_plateau"]),
        DefaultValue::Value("\"constant\""),
        "Learning rate schedule: constant, cosine decay to 0 at the end of the run, the same after a linear \
         warmup, or lower each time the training loss of an epoch stops improving.",
    )
    .aliases(&["lr_schedule", "scheduler"]),
    Key::new(
        "optimizer",
        "warmup_steps",
        ValueType::Integer(1),
        DefaultValue::Unset("no warmup; required for `warmup_cosine`", "100"),
        "Number of warmup steps, with `warmup_cosine`.",
    )
    .aliases(&["warmup"]),
    Key::new(
        "optimizer",
        "plateau_factor",
        ValueType::Number("above 0 and below 1", |factor| factor > 0.0 && factor < 1.0),
        DefaultValue::Unset("0.5, with `reduce_on_plateau`", "0.1"),
        "Factor that the learning rate is multiplied by on a plateau, with `reduce_on_plateau`.",
    )
    .aliases(&["factor"]),
    Key::new(
        "optimizer",
        "plateau_patience",
        ValueType::Integer(1),
        DefaultValue::Unset("3, with `reduce_on_plateau`", "5"),
        "Number of epochs without a better training loss that are a plateau, with `reduce_on_plateau`.",
    ),
    Key::new(
        "optimizer",
        "weight_decay",
        ValueType::Number("of at least 0", |decay| decay >= 0.0),
        DefaultValue::Value("0.0"),
        "Decoupled weight decay, with `adamw` and `lion`.",
    )
    .aliases(&["decay", "wd"]),
    Key::new(
        "optimizer",
        "weight_decay_mask",
        ValueType::Choice(&["matrices"]),
        DefaultValue::Unset("all parameters decay", "\"matrices\""),
        "Which parameters decay: `matrices` are those of two or more dimensions, so that biases and the scales \
         of normalization layers do not.",
    )
    .aliases(&["decay_mask", "mask"]),
    Key::new(
        "optimizer",
        "momentum",
        ValueType::Number("of at least 0 and below 1", |part| (0.0..1.0).contains(&part)),
        DefaultValue::Value("0.9"),
        "Momentum, with `sgd`.",
    ),
    Key::new(
        "optimizer",
        "clip",
        ValueType::Number("above 0", |norm| norm > 0.0),
        DefaultValue::Unset("no clipping", "1.0"),
        "Maximum global gradient norm; larger gradients are scaled down to it.",
    )
    .aliases(&["grad_clip", "gradient_clip", "max_grad_norm"]),
    Key::new(
        "optimizer",
        "accumulate",
        ValueType::Integer(1),
        DefaultValue::Value("1"),
        "Number of batches whose gradients are averaged for one update.",
    )
    .aliases(&["accumulation_steps", "grad_accum"]),
];

const TRAINING: &[Key] = &[
    Key::new(
        "training",
        "epochs",
        ValueType::Integer(1),
        DefaultValue::Value("10"),
        "Number of epochs; no limit if `steps` is set and this is not.",
    )
    .aliases(&["num_epochs", "n_epochs"])
    .in_template()
    .resumable(),
    Key::new(
        "training",
        "steps",
        ValueType::Integer(1),
        DefaultValue::Unset("no limit besides `epochs`", "10000"),
        "Number of steps of the whole run, rounded up to whole dispatches; it may end within an epoch.",
    )
    .aliases(&["max_steps", "num_steps", "total_steps"])
    .resumable(),
    Key::new(
        "training",
        "loss",
        ValueType::ChoiceOrPython(
            &["mse", "mae", "huber", "cross_entropy", "binary_cross_entropy"],
            "my_loss.py:loss",
        ),
        DefaultValue::Unset("`mse` for floats, `cross_entropy` for integers", "\"huber\""),
        "Loss. `cross_entropy` takes labels, or floats with a probability for each class (one-hot); \
         `binary_cross_entropy` takes 0 or 1 for each of several labels. Your own is a function of outputs and \
         targets that returns one loss per row, or a dictionary with a `loss` and other metrics.",
    )
    .aliases(&["loss_fn", "criterion", "objective"]),
    Key::new(
        "training",
        "seed",
        ValueType::Integer(0),
        DefaultValue::Value("0"),
        "Seed of the initial parameters and of dropout.",
    ),
    Key::new(
        "training",
        "device",
        ValueType::Choice(&["cpu", "gpu", "cuda", "cuda?", "metal"]),
        DefaultValue::Unset("chosen by JAX", "\"cuda\""),
        "Device. `cuda` (or `gpu`) requires a GPU, `cuda?` uses the CPU if there is none, `metal` is \
         experimental.",
    )
    .aliases(&["platform", "backend"])
    .resumable(),
    Key::new(
        "training",
        "directory",
        ValueType::Path,
        DefaultValue::Unset("`runs/` and the name of this file", "\"runs/first\""),
        "Output directory for checkpoints, `metrics.jsonl` and `report.html`.",
    )
    .aliases(&["output", "run_dir", "log_dir", "out"])
    .resumable(),
    Key::new(
        "training",
        "steps_per_dispatch",
        ValueType::Integer(1),
        DefaultValue::Value("1"),
        "Number of steps per call into XLA, by `jax.lax.scan`; faster if a step takes less than a millisecond.",
    )
    .aliases(&["steps_per_execution", "scan_steps"]),
    Key::new(
        "training",
        "log_every",
        ValueType::Integer(1),
        DefaultValue::Value("50"),
        "Number of steps between two lines in `metrics.jsonl`.",
    )
    .aliases(&["log_steps", "log_interval"])
    .resumable(),
    Key::new(
        "training",
        "eval_every",
        ValueType::Integer(1),
        DefaultValue::Unset("after each epoch", "1000"),
        "Number of steps between two evaluations.",
    )
    .aliases(&["eval_steps", "val_check_interval", "validate_every"])
    .resumable(),
    Key::new(
        "training",
        "best_by",
        ValueType::String("`min` or `max` and the name of a metric"),
        DefaultValue::Unset("`min loss`", "\"max accuracy\""),
        "Which evaluation is the best: `min` or `max`, and a metric of the validation.",
    )
    .aliases(&["monitor", "metric_for_best_model"])
    .resumable(),
    Key::new(
        "training",
        "stop_after",
        ValueType::Integer(1),
        DefaultValue::Unset("no early stopping", "5"),
        "Early stopping: number of evaluations in a row, one per epoch unless `eval_every` is set, without a better \
         one (`best_by`).",
    )
    .aliases(&["patience", "early_stopping", "early_stop"])
    .resumable(),
    Key::new(
        "training",
        "stop_on_nan",
        ValueType::Bool,
        DefaultValue::Value("true"),
        "Stop when the loss is NaN or infinite.",
    )
    .resumable(),
    Key::new(
        "training",
        "tensorboard",
        ValueType::Bool,
        DefaultValue::Value("false"),
        "Write TensorBoard files to `tensorboard/` in the directory; needs the extra \
         `vramfit[tensorboard]`.",
    )
    .aliases(&["tb"])
    .resumable(),
];

const CHECKPOINT: &[Key] = &[
    Key::new(
        "checkpoint",
        "every_steps",
        ValueType::Integer(1),
        DefaultValue::Unset("by time only", "1000"),
        "Number of steps between two checkpoints.",
    )
    .resumable(),
    Key::new(
        "checkpoint",
        "every_seconds",
        ValueType::Number("above 0", |seconds| seconds > 0.0),
        DefaultValue::Value("600"),
        "Seconds between two checkpoints. One is always saved at the end of a run.",
    )
    .aliases(&["every_minutes", "interval"])
    .resumable(),
    Key::new(
        "checkpoint",
        "keep_last",
        ValueType::Integer(1),
        DefaultValue::Value("2"),
        "Number of most recent checkpoints to keep.",
    )
    .aliases(&["max_to_keep", "keep"])
    .resumable(),
    Key::new(
        "checkpoint",
        "keep_best",
        ValueType::Integer(0),
        DefaultValue::Value("1"),
        "Number of checkpoints with the lowest validation loss to keep.",
    )
    .resumable(),
];
