//! What the kernel tells of processes: when they were started, and with which words.

use std::fs;

use vramfit_model::published;

/// Returns when a process was started, in ticks since the machine was; `None` if it is gone.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    published::started_ticks(&stat)
}

/// Returns the words that a process was started with, as `ps` shows them, invalid Unicode replaced; none if they cannot be
/// read.
pub(crate) fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    match words {
        [] => Vec::new(),
        words => words.split(|byte| *byte == 0).map(lossy).collect(),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
