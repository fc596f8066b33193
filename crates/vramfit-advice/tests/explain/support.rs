//! What tests of explanations share.

use vramfit_advice::explain::{
    CauseId, Confidence, ExplainOptions, Explanation, LogScanner, Remedy, explain,
};
use vramfit_model::gpu::Gpu;

/// Explains a log.
pub(super) fn explained(text: &str) -> Explanation {
    explained_on(text, None)
}

/// Explains a log of GPUs of the catalog, if it is known which.
pub(super) fn explained_on(text: &str, gpus: Option<&str>) -> Explanation {
    let mut scanner = LogScanner::new("");
    scanner.push(text.as_bytes());
    let gpus = gpus.map(|label| label.parse().expect("GPUs of the catalog"));
    explain(&scanner.finish(), &ExplainOptions { gpus, ..ExplainOptions::default() })
}

/// Returns the first cause, and how certain it is.
pub(super) fn first(explanation: &Explanation) -> Option<(CauseId, Confidence)> {
    explanation.causes.first().map(|cause| (cause.id, cause.confidence))
}

/// Returns the ids of the remedies, in order.
pub(super) fn ids(explanation: &Explanation) -> Vec<&'static str> {
    explanation.remedies.iter().map(|remedy| remedy.id).collect()
}

/// Returns what an explanation says of a remedy.
pub(super) fn remedy<'e>(explanation: &'e Explanation, id: &str) -> Option<&'e Remedy> {
    explanation.remedies.iter().find(|remedy| remedy.id == id)
}

/// Returns the limit of the pool of a release before 0.10.2.
pub(super) fn limit_of(gpu: &Gpu, fraction: f64) -> u64 {
    (gpu.total_memory_bytes as f64 * f64::from(fraction as f32)) as u64
}
