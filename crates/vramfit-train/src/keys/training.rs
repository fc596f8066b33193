//! `[training]`: the training loop.

use crate::key::{DefaultValue, Key, ValueType};

pub(super) const KEYS: &[Key] = &[
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
