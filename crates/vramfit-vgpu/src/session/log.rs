//! Lines on standard error: messages with the prefix `vramfit:`, and
//! the lines that XLA itself would log.

use std::io::Write;
use std::time::SystemTime;

use vramfit_model::allocator::{LogRecord, Severity};

/// Prints one line with the prefix `vramfit:`. Errors are ignored: standard error may be closed.
pub(crate) fn print_line(text: &str) {
    print(&format!("vramfit: {text}\n"));
}

/// Writes to standard error in one call: it is not buffered, and a line written in pieces can be torn
/// apart by what other threads and XLA write.
fn print(lines: &str) {
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// In XLA's advice about fragmentation: a variable that JAX's plugin does not read.
const UNREAD_VARIABLE: &str = "TF_GPU_ALLOCATOR";
/// What XLA writes above the summary, which is logged at a lower level.
const SUMMARY_FOLLOWS: &str = "Current allocation summary follows.";

/// Prints records as the real plugin would log them, at the level that the user has set; but no advice that is
/// false, no announcement of what is not printed, and no map without its legend.
pub(crate) fn print_as_xla(records: &[LogRecord]) {
    let min_level = std::env::var("TF_CPP_MIN_LOG_LEVEL").ok().and_then(|text| text.parse().ok());
    // JAX sets 1 unless the user has set something.
    let min_level: u32 = min_level.unwrap_or(1);
    let mut lines = String::new();
    for record in records {
        let (level, letter) = match record.severity {
            Severity::Info => (0, 'I'),
            Severity::Warning => (1, 'W'),
        };
        if level >= min_level
            && let Some(text) = shown_text(&record.text, min_level == 0)
        {
            let prefix = absl_prefix(letter);
            lines.push_str(&format!("{prefix}{text}\n"));
        }
    }
    print(&lines);
}

/// Returns what is printed of a record: all but XLA's false advice, and without the summary only what was requested.
fn shown_text(text: &str, has_summary: bool) -> Option<String> {
    let is_map = text.chars().all(|cell| matches!(cell, '*' | 'x' | '_'));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.retain(|line| {
        !line.contains(UNREAD_VARIABLE) && (has_summary || *line != SUMMARY_FOLLOWS)
    });
    lines.dedup();
    (has_summary || !is_map).then(|| lines.join("\n").trim_end().to_owned())
}

/// The prefix of the absl log: severity, date, time, thread, and the file the text is from.
fn absl_prefix(severity: char) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() as libc::time_t;
    let mut local = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid; `localtime_r` fills the whole struct, or leaves zeros.
    let local = unsafe {
        libc::localtime_r(&raw const seconds, local.as_mut_ptr());
        local.assume_init()
    };
    // SAFETY: takes no argument and cannot fail.
    let thread = unsafe { libc::gettid() };
    format!(
        "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {thread:>7} bfc_allocator.cc] ",
        local.tm_mon + 1,
        local.tm_mday,
        local.tm_hour,
        local.tm_min,
        local.tm_sec,
        now.subsec_micros(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_announced_that_does_not_follow_and_no_advice_is_false() {
        let header = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to \
                      1073741824)requested by op \nIf the cause is memory fragmentation maybe the \
                      environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n\
                      Current allocation summary follows.\nCurrent allocation summary follows.";
        let request = header.lines().next().expect("has lines").trim_end();
        assert_eq!(shown_text(header, false).as_deref(), Some(request));
        let with_summary =
            format!("{}\n{SUMMARY_FOLLOWS}", header.lines().next().expect("has lines"));
        assert_eq!(shown_text(header, true), Some(with_summary));
        let map = "***xx___***";
        assert_eq!(shown_text(map, false), None);
        assert_eq!(shown_text(map, true).as_deref(), Some(map));
    }
}
