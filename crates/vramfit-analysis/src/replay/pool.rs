//! The pool of one device during a replay: its allocator, made when it is first needed, and its device.

use super::recorded_device::RecordedDevice;
use crate::allocator::{self, Allocator, DeviceMemory, PoolOptions, SimulatedDeviceMemory};
use crate::error::{Error, Result};

/// The allocator of one device, and the device behind it.
pub(super) struct ReplayPool {
    /// Made at the first request. Some kinds ask the device while they are made; what it said is
    /// in the trace right before that request.
    pub(super) allocator: Option<Box<dyn Allocator>>,
    pub(super) options: PoolOptions,
    pub(super) device: DeviceSource,
    /// Answers of the device that the next request will ask for.
    pub(super) has_pending_results: bool,
    pub(super) level: PoolLevel,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Given out, rounding included.
    pub in_use_bytes: u64,
    /// Taken from the device and not given out; `None` where nothing is pooled.
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
pub(crate) struct PoolLevel {
    pub(crate) in_use_bytes: u64,
    /// `None` where nothing is pooled.
    pub(crate) pool_bytes: Option<u64>,
}

/// Where a pool has its memory from.
pub(super) enum DeviceSource {
    /// The device of the run, with the answers that it gave then.
    Recorded(RecordedDevice),
    /// A device that nobody shares, with this many bytes free.
    Simulated(u64),
}

impl ReplayPool {
    pub(super) fn new(options: PoolOptions, device: DeviceSource) -> ReplayPool {
        ReplayPool {
            allocator: None,
            options,
            device,
            has_pending_results: false,
            level: PoolLevel::default(),
        }
    }

    /// Returns the allocator, which is made now if nothing was asked of it so far.
    pub(super) fn allocator(&mut self) -> &mut Box<dyn Allocator> {
        self.allocator.get_or_insert_with(|| {
            let memory: Box<dyn DeviceMemory> = match &self.device {
                DeviceSource::Recorded(device) => Box::new(device.clone()),
                DeviceSource::Simulated(free_bytes) => {
                    Box::new(SimulatedDeviceMemory::new(*free_bytes))
                }
            };
            allocator::build(&self.options, memory)
        })
    }

    /// Takes over how full it is.
    pub(super) fn update_level(&mut self) {
        let stats = self.allocator().stats();
        self.level = PoolLevel { in_use_bytes: stats.bytes_in_use, pool_bytes: stats.pool_bytes };
    }

    /// Checks that a request asked the device exactly what it asked in the run.
    pub(super) fn verify_driver_calls(&mut self, at: u64) -> Result<()> {
        let DeviceSource::Recorded(device) = &self.device else {
            return Ok(());
        };
        let mut differs = device.differs();
        if self.has_pending_results {
            differs |= device.has_results_left();
            self.has_pending_results = false;
        }
        if differs {
            let what = "the requests to the GPU differ from those of the run";
            return Err(replay_mismatch(at, what));
        }
        Ok(())
    }
}

/// Says that replay and run differ at an event: the trace is damaged, made up, or of a vramfit whose
/// allocators were others. Who has just recorded it knows that it is neither.
pub(crate) fn replay_mismatch(events: u64, what: &str) -> Error {
    let at = events.saturating_sub(1);
    Error::invalid_file(format!("the trace contradicts itself at event {at}: {what}"))
        .hint("record it again with `vramfit dryrun --trace`; its figures are not reliable")
}

/// Says that an event of the trace cannot have happened.
pub(crate) fn corrupt_trace(events: u64, what: &str) -> Error {
    let at = events.saturating_sub(1);
    Error::invalid_file(format!("the trace is inconsistent at event {at}: {what}"))
}
