//! Identifying processes: a PID and its start time.

use std::fs;

use vramfit_core::published;

/// Returns when a process was started, in ticks since the machine was; `None` if it is gone.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    published::started_ticks(&stat)
}
