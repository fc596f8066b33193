//! What the devices of a run came to, also of one that has several processes.

use std::cmp::Reverse;

use serde::Serialize;

use super::series::{ArraySummary, LayoutSummary, TimelinePoint};
use crate::replay::PoolState;
use crate::trace::Purpose;

/// What one device came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceSummary {
    /// Its number.
    pub device: u32,
    /// What the allocator may take; `None` where it has no limit of its own.
    pub limit_bytes: Option<u64>,
    /// What this process could have had: the limit where it is one, but not more than the GPU has
    /// beside the context and what others hold (going by the header, and other processes at their most).
    pub capacity_bytes: u64,
    /// The most that other processes held of it at once while this process used it.
    pub used_by_others_bytes: u64,
    /// Most that was ever taken from the GPU; `None` where nothing is pooled.
    pub pool_bytes: Option<u64>,
    /// Most that was ever given out at once, rounding included.
    pub peak_bytes: u64,
    /// When that was first reached; `None` when nothing was ever given out.
    pub peak: Option<RequestContext>,
    /// What the pool looked like then.
    pub at_peak: PoolState,
    /// What it looks like at the end.
    pub at_end: PoolState,
    /// How full it was over the run.
    pub timeline: Vec<TimelinePoint>,
    /// The arrays that were there at the peak, by who made them.
    pub arrays_at_peak: Vec<ArraySummary>,
    /// Those that were there when the last execution of [`super::RunSummary::step`] began.
    pub arrays_between_steps: Vec<ArraySummary>,
    /// Those that are there at the end.
    pub arrays_at_end: Vec<ArraySummary>,
    /// What lay where at the peak; no regions where nothing is pooled.
    pub layout_at_peak: LayoutSummary,
    /// What lay where when the first request of the run failed; no regions where that was on another device.
    pub layout_at_failure: LayoutSummary,
    /// What lies where at the end.
    pub layout_at_end: LayoutSummary,
    /// The least in use between the last two executions of [`super::RunSummary::step`]. With a single
    /// execution: what was in use when it began. 0 when nothing was executed.
    pub steady_state_bytes: u64,
    /// Most that was ever held outside the pool by this process, in constants and machine code of
    /// its programs; the context excluded.
    pub outside_bytes: u64,
    /// Requests refused here.
    pub failures: u64,
}

impl DeviceSummary {
    /// Returns the limit where there is one: `cuda_async` without preallocation reports one of 0 and
    /// has none.
    pub fn limit(&self) -> Option<u64> {
        self.limit_bytes.filter(|limit| *limit > 0)
    }
}

/// Returns the device with least to spare, of equals the one with the highest peak.
pub(super) fn tightest(devices: &[DeviceSummary]) -> Option<&DeviceSummary> {
    let key = |device: &&DeviceSummary| {
        let spare = device.capacity_bytes.saturating_sub(device.peak_bytes);
        (Reverse(spare), device.peak_bytes)
    };
    // `max_by_key` takes the last of equals.
    devices.iter().rev().max_by_key(key)
}

/// What one of several processes of a run came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessSummary {
    /// Its number; 0 where that is not known.
    pub pid: u32,
    /// Its command line.
    pub command: Vec<String>,
    /// As [`super::Verdict::fits`].
    pub fits: Option<bool>,
    /// Requests that were refused.
    pub oom_count: u64,
    /// What it came to on each device.
    pub devices: Vec<ProcessDevice>,
}

/// What a process came to on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessDevice {
    /// The number of the GPU in the machine.
    pub gpu: u32,
    /// As [`DeviceSummary::capacity_bytes`].
    pub capacity_bytes: u64,
    /// As [`DeviceSummary::pool_bytes`].
    pub pool_bytes: Option<u64>,
    /// As [`DeviceSummary::peak_bytes`].
    pub peak_bytes: u64,
    /// As [`DeviceSummary::used_by_others_bytes`].
    pub used_by_others_bytes: u64,
}

/// A moment of a run, as people think of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestContext {
    /// Name of the program in execution; `None` between executions.
    pub program: Option<String>,
    /// Which execution of that program, from 1. Between executions: how many were done in all.
    pub call: u64,
    /// What the bytes were for.
    pub purpose: Purpose,
    /// Bytes requested at that moment.
    pub requested_bytes: u64,
    /// Line of the user's program, empty if not known.
    pub site: String,
    /// Index of the event in the trace.
    pub event: u64,
}
