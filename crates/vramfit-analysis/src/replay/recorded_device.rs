//! The GPU of a traced run: it gives the results that it gave then.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::allocator::{DeviceMemory, Region};

/// A GPU that gives the results it gave in the run. Clones are the same GPU.
#[derive(Clone, Default)]
pub(super) struct RecordedDevice(Arc<DriverScript>);

#[derive(Default)]
struct DriverScript {
    results: Mutex<VecDeque<(u64, Option<Region>)>>,
    /// Something was asked that is not in the trace.
    differs: AtomicBool,
}

impl RecordedDevice {
    /// Adds the answer to the question that comes after those not asked yet, and returns how many
    /// results wait now.
    pub(super) fn push_result(&self, asked: u64, region: Option<Region>) -> usize {
        let mut results = self.results();
        results.push_back((asked, region));
        results.len()
    }

    /// Returns `true` if something was asked that was not asked in the run.
    pub(super) fn differs(&self) -> bool {
        self.0.differs.load(Relaxed)
    }

    /// Returns `true` if results are left for which nobody asked.
    pub(super) fn has_results_left(&self) -> bool {
        !self.results().is_empty()
    }

    fn results(&self) -> MutexGuard<'_, VecDeque<(u64, Option<Region>)>> {
        let results = self.0.results.lock();
        results.unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for RecordedDevice {
    fn allocate(&mut self, _alignment: u64, bytes: u64) -> Option<Region> {
        match self.results().pop_front() {
            Some((asked, region)) if asked == bytes => region,
            _ => {
                self.0.differs.store(true, Relaxed);
                None
            }
        }
    }

    fn free(&mut self, _region: Region) {}

    fn free_bytes(&self) -> u64 {
        // Only texts for people are made of it, and those are in the trace.
        0
    }
}
