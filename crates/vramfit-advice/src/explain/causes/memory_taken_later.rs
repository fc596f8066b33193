use super::Judgement;
use super::fragmentation::ReportedFreeMemory;
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::Message;
use crate::explain::shares::MAX_CONTEXT_BYTES;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    refused_growth(facts)
        .or_else(|| refused_region(facts))
        .or_else(|| async_below_total(facts))
        .or_else(|| growth_below_limit(facts))
}

/// The pool may grow by enough, and yet the request failed: the driver had less.
fn refused_growth(facts: &Facts<'_>) -> Option<Judgement> {
    let dump = facts.log.dump()?;
    let rounded = facts.rounded_bytes()?;
    let left = dump.unallocated_bytes()?;
    let tolerance = dump.limit()?.tolerance.saturating_add(facts.request()?.size.tolerance);
    if !dump.grows()? || rounded > left.saturating_sub(tolerance) {
        return None;
    }
    let summary = format!(
        "the pool may grow by {}, but the driver did not have the {} that were requested: others took the \
         memory after the program had started",
        Bytes(left),
        Bytes(rounded),
    );
    Some(Judgement::sure(summary, facts.quote_request()))
}

/// The driver refused a region to a pool that was there before.
fn refused_region(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, size) = facts.log.driver_refusals().next()?;
    let grows = facts.log.has(|message| match message {
        Message::PoolPlanned { preallocated, .. } => !preallocated,
        Message::Setting { name, value } => {
            name == "XLA_PYTHON_CLIENT_PREALLOCATE" && matches!(value.as_str(), "false" | "0")
        }
        _ => false,
    });
    let ran_before = event.steps_before > 0;
    if !grows && !ran_before {
        return None;
    }
    // A pool that reached its own limit does not ask the driver.
    let confidence = if grows { Confidence::Likely } else { Confidence::Possible };
    let summary = format!(
        "the driver refused {} to a pool that was in use before: others took the memory after the program \
         had started, or the GPU is full",
        Bytes(size.bytes)
    );
    let evidence = facts.quote_with_request(event);
    Some(Judgement::new(confidence, summary, evidence))
}

/// A pool that grows on demand has not reached its limit, by statistics, and how far it had grown is not known.
fn growth_below_limit(facts: &Facts<'_>) -> Option<Judgement> {
    let free = ReportedFreeMemory::find(facts).filter(|free| free.is_of_growing_pool)?;
    let summary = format!(
        "the limit of the pool, which grows on demand, left {}, more than the {} requested: where the pool could still \
         grow, the driver did not have the memory, because others took it after the program had started",
        Bytes(free.bytes),
        Bytes(facts.rounded_bytes()?)
    );
    Some(Judgement::possible(summary, facts.quote_request()))
}

/// CUDA's own pool failed, and the driver's figures show that others hold what is missing.
fn async_below_total(facts: &Facts<'_>) -> Option<Judgement> {
    let is_async = |message: &Message| matches!(message, Message::AsyncRefusal { .. });
    let refusal = facts.log.first(is_async)?;
    let total = facts.figures.gpu_total_bytes?;
    let free = facts.figures.gpu_free_bytes?;
    let in_use = facts.log.pool_stats()?.in_use?.bytes;
    let others = total.checked_sub(free)?.checked_sub(in_use)?.checked_sub(MAX_CONTEXT_BYTES)?;
    let rounded = facts.rounded_bytes()?;
    (rounded <= free.saturating_add(others)).then(|| {
        let summary = format!(
            "the GPU has {} in use beside this pool's {}; without it the request would have fitted",
            Bytes(others),
            Bytes(in_use)
        );
        Judgement::likely(summary, vec![facts.quote(refusal)])
    })
}
