//! What a refused request comes to on a GPU whose driver reports the highest total of its kind.

use super::effect::{Divergence, StepEffect};
use super::engine::Replay;
use super::fast_forward::{EventConsumer, feed};
use super::snapshot::ReplaySnapshot;
use crate::error::Result;
use crate::trace::{Event, EventSource, Header, Note};

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
    /// Whether every request up to and including the one that was refused first would be met there.
    /// What the program would ask for after it is not in the trace.
    pub is_met: bool,
}

/// Replays a run that was refused a request while other processes held memory of the GPU, on a GPU that it
/// has to itself, and says whether that request would be met there.
///
/// # Errors
/// Those of [`EventSource::next_event`], and [`crate::ErrorKind::InvalidFile`] for events that make no
/// sense.
pub fn is_met_alone(source: &mut dyn EventSource) -> Result<bool> {
    let header = source.header().clone();
    let search = DecisiveRequest::find(source, &header)?;
    // Where no request was refused it is the context, for which an empty GPU has room.
    Ok(search.is_met.unwrap_or(true))
}

/// Replays a run that was refused a request on a GPU with the highest total that its header names.
///
/// `None` when the header names no higher total, or when nothing was refused.
///
/// # Errors
/// Those of [`EventSource::next_event`], and [`crate::ErrorKind::InvalidFile`] for events that make no
/// sense.
pub fn replay_at_max_total(source: &mut dyn EventSource) -> Result<Option<TotalRangeSummary>> {
    let header = source.header();
    let max_total_memory_bytes = header.max_total_memory_bytes;
    if max_total_memory_bytes <= header.total_memory_bytes {
        return Ok(None);
    }
    let header = Header { total_memory_bytes: max_total_memory_bytes, ..header.clone() };
    let DecisiveRequest { mut replay, is_met, .. } = DecisiveRequest::find(source, &header)?;
    Ok(is_met.map(|is_met| TotalRangeSummary {
        max_total_memory_bytes,
        limit_bytes: match replay.devices() {
            0 => None,
            _ => replay.allocator(0).stats().bytes_limit,
        },
        is_met,
    }))
}

/// The search for the request that decides.
struct DecisiveRequest {
    replay: Replay,
    /// Whether it was met; `None` before it.
    is_met: Option<bool>,
    /// The earliest allocation that an event of the watched pass names; the largest number for none.
    first_named: u64,
}

impl DecisiveRequest {
    /// Lets the events happen under that header until the request that decides.
    fn find(source: &mut dyn EventSource, header: &Header) -> Result<DecisiveRequest> {
        let mut search = DecisiveRequest {
            replay: Replay::what_if(header, false)?,
            is_met: None,
            first_named: u64::MAX,
        };
        feed(source, &mut search, u64::MAX)?;
        Ok(search)
    }
}

impl EventConsumer for DecisiveRequest {
    type Snapshot = ReplaySnapshot;

    fn live_allocations(&self) -> u64 {
        self.replay.live().count() as u64
    }

    fn on_notes(&mut self, _: &[Note]) {}

    fn on_event(&mut self, event: &Event) -> Result<bool> {
        let named = event.named_allocation().unwrap_or(u64::MAX);
        self.first_named = self.first_named.min(named);
        self.is_met = match self.replay.apply(event, 0)? {
            StepEffect::Refused(..) | StepEffect::Aborted(..) => Some(false),
            _ if self.replay.divergence() == Some(Divergence::Granted) => Some(true),
            _ => None,
        };
        Ok(self.is_met.is_none())
    }

    fn start_pass(&mut self) -> ReplaySnapshot {
        self.first_named = u64::MAX;
        self.replay.snapshot()
    }

    fn skip_passes(&mut self, before: ReplaySnapshot, max_passes: u64) -> u64 {
        match self.replay.period_since(&before, self.first_named) {
            Some(period) if max_passes > 0 => {
                self.replay.skip_passes(&period, &before, max_passes);
                max_passes
            }
            _ => 0,
        }
    }
}
