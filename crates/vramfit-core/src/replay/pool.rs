//! The pool of one device during a replay: its allocator, made when it is first needed, and its card.

use serde::Serialize;

use super::recorded_device::RecordedDevice;
use crate::allocator::{self, Allocator, DeviceMemory, PoolOptions, SimulatedDeviceMemory};
use crate::error::{Error, ErrorKind, Result};

/// The allocator of one device, and the card behind it.
pub(super) struct Pool {
    /// Made at the first request. Some kinds ask the card while they are made; what it said is
    /// in the trace right before that request.
    pub(super) allocator: Option<Box<dyn Allocator>>,
    pub(super) options: PoolOptions,
    pub(super) card: Card,
    /// Answers of the card that the next request will ask for.
    pub(super) answers_waiting: bool,
    pub(super) level: Level,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolState {
    /// Given out, rounding included.
    pub in_use_bytes: u64,
    /// Taken from the card and not given out; `None` where nothing is pooled.
    pub free_bytes: Option<u64>,
    /// Largest free piece of it.
    pub largest_free_block_bytes: Option<u64>,
}

impl PoolState {
    /// Returns the share of the free bytes that is not in the largest free block, 0 to 1: 0 when
    /// nothing is free. `None` where nothing is pooled.
    pub fn fragmentation(&self) -> Option<f64> {
        let (free, largest) = (self.free_bytes?, self.largest_free_block_bytes?);
        if free == 0 {
            return Some(0.0);
        }
        Some(free.saturating_sub(largest) as f64 / free as f64)
    }
}

/// How much of a pool is given out, and how large it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) in_use_bytes: u64,
    /// `None` where nothing is pooled.
    pub(crate) pool_bytes: Option<u64>,
}

/// Where a pool has its memory from.
pub(super) enum Card {
    /// The card of the run, with the answers that it gave then.
    Recorded(RecordedDevice),
    /// A card that nobody shares, with so many bytes free.
    Own(u64),
}

impl Pool {
    pub(super) fn new(options: PoolOptions, card: Card) -> Pool {
        Pool {
            allocator: None,
            options,
            card,
            answers_waiting: false,
            level: Level::default(),
        }
    }

    /// Returns the allocator, which is made now if nothing was asked of it so far.
    pub(super) fn allocator(&mut self) -> &mut Box<dyn Allocator> {
        self.allocator.get_or_insert_with(|| {
            let memory: Box<dyn DeviceMemory> = match &self.card {
                Card::Recorded(card) => Box::new(card.clone()),
                Card::Own(free_bytes) => Box::new(SimulatedDeviceMemory::new(*free_bytes)),
            };
            allocator::build(&self.options, memory)
        })
    }

    /// Says whether anything was asked of the pool: until then it does not exist, and some allocators
    /// ask the driver for memory as soon as they do.
    pub(super) fn exists(&self) -> bool {
        self.allocator.is_some()
    }

    /// Takes over how full it is.
    pub(super) fn note_level(&mut self) {
        let stats = self.allocator().stats();
        self.level = Level {
            in_use_bytes: stats.bytes_in_use,
            pool_bytes: stats.pool_bytes,
        };
    }

    /// Checks that a request asked the card exactly what it asked in the run.
    pub(super) fn settle(&mut self, at: u64) -> Result<()> {
        let Card::Recorded(card) = &self.card else {
            return Ok(());
        };
        let mut differs = card.differs();
        if self.answers_waiting {
            differs |= card.has_answers_left();
            self.answers_waiting = false;
        }
        if differs {
            let what = "the card was asked for other amounts of memory than in the run";
            return Err(disagreement(at, what));
        }
        Ok(())
    }
}

/// Says that replay and run differ at an event: the trace is damaged, made up, or of a vramfit whose
/// allocators were others. Who has just recorded it knows that it is neither.
pub(crate) fn disagreement(events: u64, what: &str) -> Error {
    let at = events.saturating_sub(1);
    Error::new(
        ErrorKind::InvalidFile,
        format!("the trace contradicts itself at event {at}: {what}"),
    )
    .hint("record it again with `vramfit dryrun --trace`; no figure of this file can be trusted")
}

/// Says that an event of the trace cannot have happened.
pub(crate) fn inconsistent(events: u64, what: &str) -> Error {
    let at = events.saturating_sub(1);
    Error::new(
        ErrorKind::InvalidFile,
        format!("the trace is inconsistent at event {at}: {what}"),
    )
}
