//! `[optimizer]`: the optimizer.

use crate::key::{DefaultValue, Key, ValueType};

pub(super) const KEYS: &[Key] = &[
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
