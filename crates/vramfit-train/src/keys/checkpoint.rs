//! `[checkpoint]`: the checkpoints.

use crate::key::{DefaultValue, Key, ValueType};

pub(super) const KEYS: &[Key] = &[
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
