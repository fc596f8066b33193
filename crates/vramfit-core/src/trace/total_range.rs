//! What a refused request comes to on a GPU whose driver reports the highest total of its kind.

use serde::Serialize;

use super::replay::{Effect, Parting, Replay};
use super::{Events, Header};
use crate::error::Result;

/// The request that decides a run, on a GPU with the highest total that drivers report.
///
/// The programs are those of the run: XLA fits them into the pool, which grows with the total, so
/// on such a GPU they may be compiled otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TotalRangeAnswer {
    /// The highest total that drivers report for a GPU of this kind.
    pub max_total_memory_bytes: u64,
    /// What its pool may take; `None` where the allocator has no limit.
    pub limit_bytes: Option<u64>,
    /// Whether every request up to and including the one that was refused first would be met there.
    /// What the program would ask for after it is not in the trace.
    pub is_met: bool,
}

/// Replays a run that was refused a request on a GPU with the highest total that its header names.
///
/// `None` when the header names no higher total, or when nothing was refused.
///
/// # Errors
/// Those of [`Events::next_event`], and [`crate::ErrorKind::InvalidFile`] for events that make no
/// sense.
pub fn replay_at_max_total(source: &mut dyn Events) -> Result<Option<TotalRangeAnswer>> {
    let header = source.header();
    let max_total_memory_bytes = header.max_total_memory_bytes;
    if max_total_memory_bytes <= header.total_memory_bytes {
        return Ok(None);
    }
    let header = Header {
        total_memory_bytes: max_total_memory_bytes,
        ..header.clone()
    };
    let mut replay = Replay::elsewhere(&header, false)?;
    while let Some(event) = source.next_event()? {
        let is_met = match replay.apply(&event, 0)? {
            Effect::Refused(..) | Effect::Aborted(..) => false,
            _ if replay.parting() == Some(Parting::Met) => true,
            _ => continue,
        };
        let limit_bytes = match replay.devices() {
            0 => None,
            _ => replay.allocator(0).stats().bytes_limit,
        };
        return Ok(Some(TotalRangeAnswer {
            max_total_memory_bytes,
            limit_bytes,
            is_met,
        }));
    }
    Ok(None)
}
