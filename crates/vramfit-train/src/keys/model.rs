//! `[model]`: the model.

use crate::key::{DefaultValue, Key, ValueType};

pub(super) const KEYS: &[Key] = &[
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
