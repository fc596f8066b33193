use super::{Judgement, is_driver_call};
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::{DriverCall, Message};
use crate::explain::number::Size;
use crate::explain::shares::OtherProcessesUsage;

/// A pool of fewer bytes is no pool of a GPU: what the driver refuses below is something else.
const MIN_POOL_BYTES: u64 = 1 << 30;
/// What fails in no pool of a GPU before the first step, unless the pool is far smaller than intended.
const MAX_SMALL_BYTES: u64 = 64 << 20;
/// What each refused try is of the one before: XLA's `kBackpedalFactor`, and how far the log may round it.
const BACKPEDAL_FACTOR: f64 = 0.9;
const BACKPEDAL_TOLERANCE: f64 = 0.01;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    short_pool(facts)
        .or_else(|| refused_pool(facts))
        .or_else(|| refused_context(facts))
        .or_else(|| used_by_other_processes(facts))
        .or_else(|| tensorflow_first(facts))
        .or_else(|| empty_pool(facts))
        .or_else(|| small_request(facts))
        .or_else(|| lone_refusal(facts))
}

/// The dump shows a pool that should have its whole limit and has less.
fn short_pool(facts: &Facts<'_>) -> Option<Judgement> {
    let dump = facts.log.dump()?;
    let (limit, pool) = (dump.limit()?, dump.pool_bytes()?);
    let in_use = dump.in_use_bytes()?;
    let is_preallocated = !dump.grows()?;
    let missing = limit.min().checked_sub(pool).filter(|bytes| *bytes > limit.tolerance)?;
    // A pool that has nothing at all has refused its first request by itself, as larger than the limit.
    if !is_preallocated || pool == 0 {
        return None;
    }
    let rounded = facts.rounded_bytes()?;
    let would_fit = rounded <= limit.min().saturating_sub(in_use);
    let confidence = if would_fit { Confidence::Sure } else { Confidence::Possible };
    let rest = match would_fit {
        true => "with the whole limit the request would have fitted",
        false => "but the request would not have fitted into the whole limit either",
    };
    let summary = format!(
        "the driver gave the pool {} of its {} at startup, because {} were used by others; {rest}",
        Bytes(pool),
        Bytes(limit.bytes),
        Bytes(missing),
    );
    Some(Judgement::new(confidence, summary, facts.quote_request()))
}

/// The driver refused the pool itself: one size after the other, each nine tenths of the one before, or one
/// size far above what was requested later.
fn refused_pool(facts: &Facts<'_>) -> Option<Judgement> {
    // Nobody else has to use a GPU that has less than was asked for.
    if facts.settings.fraction_in_force() > 1.0 {
        return None;
    }
    let refusals: Vec<(&Event, Size)> = facts.log.driver_refusals().collect();
    let &(first, size) = refusals.first()?;
    if size.bytes < MIN_POOL_BYTES {
        return None;
    }
    let planned = facts.log.find(|message| match message {
        Message::PoolPlanned { bytes, preallocated: true } => Some(*bytes),
        _ => None,
    });
    let is_planned = planned.is_some_and(|(_, bytes)| size.agrees_with(Size::exact(bytes)));
    let is_limit =
        facts.figures.limit_bytes.is_some_and(|limit| size.agrees_with(Size::exact(limit)));
    let is_series = refusals.windows(2).any(|pair| {
        let ratio = pair[1].1.bytes as f64 / pair[0].1.bytes as f64;
        (ratio - BACKPEDAL_FACTOR).abs() <= BACKPEDAL_TOLERANCE
    });
    let request = facts.request();
    let is_larger = request.is_some_and(|request| size.bytes / 2 > request.size.bytes);
    // With some steps done before, the pool was there: it is a growing pool that was refused.
    let at_start = first.steps_before == 0;
    let earlier = !facts.is_after_failure(first);
    if !earlier || !at_start || !(is_planned || is_limit || is_series || is_larger) {
        return None;
    }
    let grows = |message: &Message| match message {
        Message::PoolPlanned { preallocated, .. } => !preallocated,
        _ => false,
    };
    if facts.log.has(grows) {
        return None;
    }
    // There it refuses large requests also where all is free.
    let is_wsl = facts.log.has(|message| *message == Message::Wsl);
    let confidence = match (is_planned || is_limit) && !is_wsl {
        true => Confidence::Sure,
        false => Confidence::Likely,
    };
    let reason = match is_wsl {
        true => {
            "others use the GPU's memory, or the driver, that of Windows, does not give so much at once"
        }
        false => "others use the GPU's memory",
    };
    let summary = format!(
        "the driver refused the pool's {} at startup, because {reason}; JAX continues with a smaller pool and still \
         shows the full limit",
        Bytes(size.bytes)
    );
    let mut evidence = facts.quote_all(refusals.iter().map(|(event, _)| *event));
    evidence.extend(facts.quote_request().into_iter().take(1));
    Some(Judgement::new(confidence, summary, evidence))
}

/// The process could not even create its context.
fn refused_context(facts: &Facts<'_>) -> Option<Judgement> {
    let is = |message: &Message| is_driver_call(message, &[DriverCall::Context]);
    Some(Judgement::likely(
        "the driver had no memory for the CUDA context of the process, so other processes use nearly all of \
         the GPU",
        vec![facts.quote(facts.log.first(is)?)],
    ))
}

/// Other processes have more of the GPU than the pool would leave them, by a figure that the log has.
fn used_by_other_processes(facts: &Facts<'_>) -> Option<Judgement> {
    let rounded = facts.rounded_bytes()?;
    let fraction = facts.settings.fraction_in_force();
    if !facts.settings.has_pool() || fraction > 1.0 || has_whole_pool(facts) {
        return None;
    }
    let OtherProcessesUsage { event, bytes, total, is_certain } = OtherProcessesUsage::find(facts)?;
    let limit = (total as f64 * fraction) as u64;
    let left = total.checked_sub(bytes)?;
    if left >= limit {
        return None;
    }
    let is_small = rounded <= MAX_SMALL_BYTES && facts.steps_before_failure() == 0;
    let (confidence, rest) = match rounded <= limit {
        true if is_certain || is_small => (Confidence::Likely, ""),
        true => (Confidence::Possible, ""),
        false => (
            Confidence::Possible,
            "; but the request would not have fitted into the whole limit either",
        ),
    };
    let summary = format!(
        "other processes have {} of the GPU's {}: at most {} are left for a pool that would have {}{rest}",
        Bytes(bytes),
        Bytes(total),
        Bytes(left),
        Bytes(limit)
    );
    Some(Judgement::new(confidence, summary, facts.quote_with_request(event)))
}

/// Returns `true` if the pool has its limit, by its own dump: it has lost nothing.
fn has_whole_pool(facts: &Facts<'_>) -> bool {
    let dump = facts.log.dump();
    let sizes = dump.and_then(|dump| dump.pool_bytes().zip(dump.limit()));
    sizes.is_some_and(|(pool, limit)| pool >= limit.min())
}

/// TensorFlow was given most of the GPU in this process, which it takes at once by default: before JAX had its pool, or
/// that much would not have been free.
fn tensorflow_first(facts: &Facts<'_>) -> Option<Judgement> {
    let taken = facts.tensorflow_bytes()?;
    let is = |message: &Message| matches!(message, Message::TensorflowPool { .. });
    let event = facts.log.first(is)?;
    facts.request()?;
    if has_whole_pool(facts) || facts.is_after_failure(event) {
        return None;
    }
    let (confidence, of) = match facts.figures.gpu_total_bytes {
        Some(total) if taken > total / 2 => {
            (Confidence::Likely, format!(" of the GPU's {}", Bytes(total)))
        }
        Some(_) => return None,
        None => (Confidence::Possible, String::new()),
    };
    let summary = format!(
        "TensorFlow was given {}{of} in this process: unless it grows on demand, JAX's pool has what was left",
        Bytes(taken)
    );
    Some(Judgement::new(confidence, summary, facts.quote_with_request(event)))
}

/// The map of the pool shows nothing in it, and yet it had no room.
fn empty_pool(facts: &Facts<'_>) -> Option<Judgement> {
    /// What most GPUs that train have. A request that exceeds its part of one may also exceed a pool that has its limit.
    const USUAL_GPU_BYTES: u64 = 22 << 30;
    let is_known = facts.log.dump().is_some_and(|dump| dump.pool_bytes().is_some());
    // In use and yet free: the figures and the map are not of the same pool.
    let is_in_use = facts.figures.in_use_bytes.is_some_and(|in_use| in_use > 0)
        && !facts.figures.in_use_is_at_end;
    // Of unified memory others leave as much as there is.
    let is_unlike = is_known || is_in_use || facts.settings.unified_memory;
    if !facts.is_pool_empty() || is_unlike || facts.exceeds_limit() {
        return None;
    }
    let settings = &facts.settings;
    let usual = settings.limit_bytes(USUAL_GPU_BYTES, settings.fraction_in_force());
    let rounded = facts.rounded_bytes()?;
    let limit = facts.pool_limit();
    let confidence = match limit {
        None if rounded > usual => Confidence::Possible,
        // It had room for these.
        _ if facts.steps_before_failure() > 0 => Confidence::Possible,
        _ => Confidence::Likely,
    };
    let unless = match limit {
        Some(limit) => format!(", though its limit is {}", Bytes(limit)),
        None => String::new(),
    };
    let others = match limit {
        Some(_) => "",
        None => ", unless its limit is as small",
    };
    let summary = format!(
        "the map shows an empty pool that has no room for {}{unless}: the driver did not give it the memory, which others \
         use{others}",
        Bytes(rounded)
    );
    Some(Judgement::new(confidence, summary, facts.quote_request()))
}

/// A request that is small for any GPU fails in a pool of which nothing is known.
fn small_request(facts: &Facts<'_>) -> Option<Judgement> {
    let request = facts.request()?;
    // Unified memory is there also where others use the GPU.
    let unknown = facts.figures.pool_bytes.is_none()
        && facts.log.map().is_none()
        && !facts.settings.unified_memory;
    (unknown && request.size.bytes <= MAX_SMALL_BYTES && facts.steps_before_failure() == 0).then(|| {
        let summary = format!(
            "{} is little for a GPU: the pool may be much smaller than intended, because others use the \
             GPU's memory",
            Bytes(request.size.bytes)
        );
        Judgement::possible(summary,
            facts.quote_request(),
        )
    })
}

/// Only the driver's refusal is in the log.
fn lone_refusal(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, size) = facts.log.driver_refusals().next()?;
    let is_alone = facts.requests.is_empty() && facts.log.dump().is_none();
    (is_alone && event.steps_before == 0).then(|| {
        let summary = format!(
            "the driver refused {}, and the log does not show for what: others may use the GPU's memory, or the \
             GPU has less",
            Bytes(size.bytes)
        );
        let evidence = vec![facts.quote(event)];
        Judgement::possible(summary,
            evidence,
        )
    })
}
