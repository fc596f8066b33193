//! What a refused request comes to on a GPU whose driver reports the highest total of its kind.

use super::effect::{Divergence, EventEffect};
use super::engine::Replay;
use crate::error::Result;
use crate::trace::{EventSource, Header};

/// The request that decides a run, on a GPU with the highest total that drivers report.
///
/// The programs are those of the run: XLA fits them into the pool, which grows with the total, so
/// on such a GPU they may be compiled otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalRangeSummary {
    /// The highest total that drivers report for a GPU of this kind.
    pub max_total_memory_bytes: u64,
    /// What its pool may take; `None` where the allocator has no limit.
    pub limit_bytes: Option<u64>,
    /// Whether every request up to and including the one that was refused first would be met there, and the pool is
    /// large enough for the rest of its execution. What the program would ask for after it is not in the trace.
    pub is_met: bool,
}

/// Replays a run that was refused a request while other processes held memory of the GPU, on a GPU that it
/// has to itself, and says whether that request would be met there, and the pool is large enough for all that its
/// execution needs.
///
/// # Errors
/// Those of [`EventSource::next_event`], and [`crate::ErrorKind::InvalidFile`] for events that make no
/// sense.
pub fn is_met_alone(source: &mut dyn EventSource, needed_bytes: u64) -> Result<bool> {
    let header = source.header().clone();
    let (mut replay, is_met) = replay_to_decisive_request(source, &header)?;
    let is_enough = limit_bytes(&mut replay).is_none_or(|limit| limit >= needed_bytes);
    // Where no request was refused it is the context, for which an empty GPU has room.
    Ok(is_met.unwrap_or(true) && is_enough)
}

/// Returns the limit of the first pool; `None` where the allocator has none.
fn limit_bytes(replay: &mut Replay) -> Option<u64> {
    match replay.devices() {
        0 => None,
        _ => replay.allocator(0).stats().bytes_limit,
    }
}

/// Replays a run that was refused a request on a GPU with the highest total that its header names; the execution of the
/// request needs so many bytes of the pool in all.
///
/// `None` when the header names no higher total, or when nothing was refused.
///
/// # Errors
/// Those of [`EventSource::next_event`], and [`crate::ErrorKind::InvalidFile`] for events that make no
/// sense.
pub fn replay_at_max_total(
    source: &mut dyn EventSource,
    needed_bytes: u64,
) -> Result<Option<TotalRangeSummary>> {
    let header = source.header();
    let max_total_memory_bytes = header.max_total_memory_bytes();
    if max_total_memory_bytes <= header.total_memory_bytes() {
        return Ok(None);
    }
    let mut header = header.clone();
    header.run.gpus.gpu.total_memory_bytes = max_total_memory_bytes;
    let (mut replay, is_met) = replay_to_decisive_request(source, &header)?;
    let limit_bytes = limit_bytes(&mut replay);
    let is_enough = limit_bytes.is_none_or(|limit| limit >= needed_bytes);
    Ok(is_met.map(|is_met| TotalRangeSummary {
        max_total_memory_bytes,
        limit_bytes,
        is_met: is_met && is_enough,
    }))
}

/// Replays a run under a header up to the request that decides. Returns the replay, and whether that
/// request is met; `None` where no request was refused.
fn replay_to_decisive_request(
    source: &mut dyn EventSource,
    header: &Header,
) -> Result<(Replay, Option<bool>)> {
    let mut replay = Replay::what_if(header, false)?;
    while let Some(event) = source.next_event()? {
        let is_met = match replay.apply(&event, 0)? {
            EventEffect::Refused(..) | EventEffect::Aborted(..) => false,
            _ if replay.divergence() == Some(Divergence::Granted) => true,
            _ => continue,
        };
        return Ok((replay, Some(is_met)));
    }
    Ok((replay, None))
}
