//! `[data]`: the data, and how it is read.

use crate::key::{DefaultValue, Key, ValueType};

pub(super) const KEYS: &[Key] = &[
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
        "Number of classes of integer targets; an error with other targets. All labels are checked against it before training starts.",
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
