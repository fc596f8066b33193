//! What of a summary explains why the run failed.

use vramfit_advice::explain::{RecordedFailure, RecordedLeak, RecordedPool, RecordedRun};

use super::allocation_failure::AllocationFailure;
use super::summary::RunSummary;

impl RunSummary {
    /// Returns what [`vramfit_advice::explain`] needs of the run.
    pub fn recorded_run(&self) -> RecordedRun<'_> {
        let leaks = self.leaks.iter().map(|leak| RecordedLeak {
            growth: leak.describe_growth(),
            times: leak.steps,
            site: &leak.site,
        });
        let compilations = self.compilations.iter().map(|compiled| {
            (compiled.name.as_str(), compiled.count - compiled.loaded.min(compiled.count))
        });
        RecordedRun {
            header: &self.header,
            compilations: compilations.collect(),
            leaks: leaks.collect(),
            failure: self.out_of_memory().map(|failure| self.recorded_failure(failure)),
            events: self.events,
            fits: self.fits(),
            peak_bytes: self.critical_device().map_or(0, |device| device.peak_bytes),
        }
    }

    fn recorded_failure<'a>(&'a self, failure: &'a AllocationFailure) -> RecordedFailure<'a> {
        let context = &failure.context;
        let pool = self.devices.get(failure.device as usize).map(|device| RecordedPool {
            limit_bytes: device.limit().unwrap_or(device.capacity_bytes),
            in_use_bytes: failure.pool.in_use_bytes,
            peak_bytes: device.peak_bytes,
            free_bytes: failure.pool.free_bytes,
            largest_free_block_bytes: failure.pool.largest_free_block_bytes,
        });
        RecordedFailure {
            requested_bytes: context.requested_bytes,
            purpose: context.purpose.label(),
            program: context.program.as_deref(),
            event: context.event,
            pool,
        }
    }
}
