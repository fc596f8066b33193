//! How many parameters a built-in model has, and what a run keeps of each.

use super::config::{Model, Optimizer};

/// Bytes of a parameter, of its gradient and of each value that the optimizer keeps: all are float32.
const VALUE_BYTES: u64 = 4;

/// Returns how many parameters a model has; none for a kind whose size is not known.
///
/// `tests/test_train_check.py` compares it with the models of `python/vramfit/train/models`.
///
/// # Arguments
/// `row` is the shape of a row as the model sees it, `outputs` how many numbers it predicts, `vocabulary` how
/// many tokens have a vector, where rows are tokens.
pub fn parameters(
    model: &Model,
    row: &[u64],
    outputs: u64,
    vocabulary: Option<u64>,
) -> Option<u64> {
    let widths = &model.hidden_sizes;
    let first = match (model.kind.as_str(), vocabulary) {
        ("mlp", _) => row.iter().product(),
        (_, Some(_)) => *widths.first()?,
        (_, None) => *row.get(1)?,
    };
    let vectors = vocabulary.map(|tokens| tokens * first);
    let inputs = std::iter::once(first).chain(widths.iter().copied());
    let layers = inputs.zip(widths.iter().copied());
    let last = *widths.last()?;
    let all = match model.kind.as_str() {
        "mlp" => layers.map(|(from, to)| dense(from, to)).sum(),
        "gru" => layers
            .map(|(from, to)| dense(from, 3 * to) + 3 * to * to)
            .sum(),
        "lstm" => layers
            .map(|(from, to)| 4 * from * to + dense(to, 4 * to))
            .sum(),
        "transformer" => {
            // Embedding and places, blocks, and the norm before the head; each norm has two values.
            let attention = 4 * dense(last, last);
            let block = 2 * 2 * last + attention + dense(last, 4 * last) + dense(4 * last, last);
            let embedding = vectors.unwrap_or_else(|| dense(first, last));
            embedding + row.first()? * last + widths.len() as u64 * block + 2 * last
        }
        _ => return None,
    };
    let vectors = match model.kind.as_str() {
        "transformer" => 0, // counted above
        _ => vectors.unwrap_or(0),
    };
    Some(all + vectors + dense(last, outputs))
}

/// Returns the parameters of a layer with biases.
fn dense(from: u64, to: u64) -> u64 {
    from * to + to
}

/// Returns the bytes of so many parameters, which are those of their gradients, too.
pub fn parameter_bytes(parameters: u64) -> u64 {
    parameters * VALUE_BYTES
}

/// Returns the bytes that an optimizer keeps of so many parameters, without its counters.
pub fn optimizer_bytes(optimizer: &Optimizer, parameters: u64) -> u64 {
    let rule = match optimizer.name.as_str() {
        "adam" | "adamw" => 2,
        _ => 1,
    };
    let sums = u64::from(optimizer.accumulate > 1);
    (rule + sums) * parameters * VALUE_BYTES
}
