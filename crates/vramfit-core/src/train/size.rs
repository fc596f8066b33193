//! The number of parameters of a built-in model, and the memory of a run for them.

use super::config::{Model, Optimizer};

/// Bytes of a parameter, of its gradient and of each value that the optimizer keeps: all are float32.
const VALUE_BYTES: u64 = 4;

/// Returns the number of parameters of a model; none for an unknown kind.
///
/// `tests/test_train_check.py` compares it with the models of `python/vramfit/train/models`.
///
/// # Arguments
/// `row` is the shape of a row as the model gets it, `outputs` the number of values that it predicts,
/// `vocabulary` the number of tokens, if rows are tokens.
pub fn parameter_count(
    model: &Model,
    row: &[u64],
    outputs: u64,
    vocabulary: Option<u64>,
) -> Option<u64> {
    let widths = &model.hidden_sizes;
    let input_width = match (model.kind.as_str(), vocabulary) {
        ("mlp", _) => row.iter().product(),
        (_, Some(_)) => *widths.first()?,
        (_, None) => *row.get(1)?,
    };
    let embedding = vocabulary.map(|tokens| tokens * input_width);
    let inputs = std::iter::once(input_width).chain(widths.iter().copied());
    let layers = inputs.zip(widths.iter().copied());
    let last = *widths.last()?;
    let body = match model.kind.as_str() {
        "mlp" => layers.map(|(from, to)| dense(from, to)).sum(),
        "gru" => layers.map(|(from, to)| dense(from, 3 * to) + 3 * to * to).sum(),
        "lstm" => layers.map(|(from, to)| 4 * from * to + dense(to, 4 * to)).sum(),
        "transformer" => {
            // Input layer and position embedding, blocks, and the final norm; a norm has two values per feature.
            let attention = 4 * dense(last, last);
            let block = 2 * 2 * last + attention + dense(last, 4 * last) + dense(4 * last, last);
            let input_layer = embedding.unwrap_or_else(|| dense(input_width, last));
            input_layer + row.first()? * last + widths.len() as u64 * block + 2 * last
        }
        _ => return None,
    };
    let embedding = match model.kind.as_str() {
        "transformer" => 0, // counted above
        _ => embedding.unwrap_or(0),
    };
    Some(body + embedding + dense(last, outputs))
}

/// Returns the parameters of a layer with biases.
fn dense(from: u64, to: u64) -> u64 {
    from * to + to
}

/// Returns the bytes of parameters, and of their gradients.
pub fn parameter_bytes(parameters: u64) -> u64 {
    parameters * VALUE_BYTES
}

/// Returns the bytes of the optimizer state, without counters.
pub fn optimizer_bytes(optimizer: &Optimizer, parameters: u64) -> u64 {
    let moments = match optimizer.name.as_str() {
        "adam" | "adamw" => 2,
        _ => 1,
    };
    let accumulators = u64::from(optimizer.accumulate > 1);
    (moments + accumulators) * parameters * VALUE_BYTES
}
