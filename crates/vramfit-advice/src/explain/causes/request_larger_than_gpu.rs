use super::Judgement;
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::request::{Request, RequestKind};
use crate::gpu;
use crate::settings::USUAL_UNIFIED_FRACTION;

/// What the largest GPU may report beyond the catalog: other drivers, newer models.
const CATALOGUE_MARGIN: f64 = 1.5;
/// Few GPUs have more.
const RARE_GPU_BYTES: u64 = 140 << 30;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let largest = facts.requests.iter().max_by_key(|request| request.size.bytes)?;
    let (confidence, comparison) = judge(facts, largest)?;
    let event = &facts.log.events[largest.event];
    let what = Bytes(largest.size.bytes);
    // With unified memory a program may use more than the GPU has, at the speed of the host's link.
    let confidence = match facts.settings.unified_memory {
        true => confidence.min(Confidence::Likely),
        false => confidence,
    };
    let total = facts.figures.gpu_total_bytes.unwrap_or_else(largest_total_bytes);
    let with_host = total as f64 * USUAL_UNIFIED_FRACTION;
    let settings = &facts.settings;
    let may_use_host = settings.unified_memory || largest.size.bytes as f64 <= with_host;
    let helps = match settings.has_pool() && may_use_host {
        true => "so no setting of the pool helps, unless it takes memory of the host as well",
        false => "so no setting of the pool helps",
    };
    let summary = format!("one request of {what} is larger than {comparison}, {helps}");
    Some(Judgement::new(confidence, summary, vec![facts.quote(event)]))
}

/// Returns the memory of the largest GPU of the catalog.
fn largest_total_bytes() -> u64 {
    let totals = gpu::all().iter().map(|gpu| gpu.max_total_memory_bytes);
    totals.max().unwrap_or(u64::MAX)
}

/// Returns the most memory that a GPU may have, of those in the catalog and those that are not.
pub(super) fn max_plausible_gpu_bytes() -> u64 {
    (largest_total_bytes() as f64 * CATALOGUE_MARGIN) as u64
}

fn judge(facts: &Facts<'_>, request: &Request) -> Option<(Confidence, String)> {
    let bytes = request.size.min();
    if let Some(total) = facts.figures.gpu_total_bytes {
        let shown = format!("the GPU ({})", Bytes(total));
        let settings = &facts.settings;
        let has = match settings.unified_memory {
            true => settings.limit_bytes(total, settings.fraction_in_force().max(1.0)),
            false => total,
        };
        return (bytes > has).then_some((Confidence::Sure, shown));
    }
    // The pool is a part of the GPU, so its limit says nothing certain about the GPU itself.
    let largest = largest_total_bytes();
    if bytes > max_plausible_gpu_bytes() {
        return Some((Confidence::Sure, format!("any GPU (at most {})", Bytes(largest))));
    }
    let shown = format!("nearly every GPU (few have more than {})", Bytes(RARE_GPU_BYTES));
    let is_rare = bytes > RARE_GPU_BYTES;
    // A pool that logged its limit would be evidence of a large GPU.
    let limit = facts.figures.limit_bytes.unwrap_or(0);
    let is_direct = request.kind == RequestKind::Direct;
    (is_rare && (limit < bytes / 2 || is_direct)).then_some((Confidence::Likely, shown))
}
