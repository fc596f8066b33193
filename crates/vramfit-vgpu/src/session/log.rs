//! Lines on standard error: messages with the prefix `vramfit:`, and
//! the lines that XLA itself would log.

use std::io::Write;
use std::time::SystemTime;

use vramfit_core::allocator::{LogRecord, Severity};

/// Prints one line with the prefix `vramfit:`. Errors are ignored: standard error may be closed.
pub(crate) fn print_line(text: &str) {
    print(&format!("vramfit: {text}\n"));
}

/// Writes to standard error in one call: it is not buffered, and a line written in pieces can be torn
/// apart by what other threads and XLA write.
fn print(lines: &str) {
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// Prints records as the real plugin would log them, at the level that the user has set.
pub(crate) fn print_as_xla(records: &[LogRecord]) {
    let min_level = std::env::var("TF_CPP_MIN_LOG_LEVEL")
        .ok()
        .and_then(|text| text.parse().ok());
    // JAX sets 1 unless the user has set something.
    let min_level: u32 = min_level.unwrap_or(1);
    let mut lines = String::new();
    for record in records {
        let (level, letter) = match record.severity {
            Severity::Info => (0, 'I'),
            Severity::Warning => (1, 'W'),
        };
        if level >= min_level {
            let prefix = absl_prefix(letter);
            lines.push_str(&format!("{prefix}{}\n", record.text));
        }
    }
    print(&lines);
}

/// The prefix of the absl log: severity, date, time, thread, and the file the text is from.
fn absl_prefix(severity: char) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
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
