//! A log from a stranger: reading it gives an explanation that can be printed, soon.
//!
//! The corpus is every log that `tests/oom_logs` generates, the examples of the pages on causes, and the logs of
//! the recorded command lines; `make fuzz` collects them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vramfit_advice::explain::{ExplainOptions, Log, LogScanner, explain};
use vramfit_analysis::report::Report;

/// Lines of the short form.
const MAX_LINES: usize = 30;

fuzz_target!(|log: &[u8]| {
    let mut whole = LogScanner::new("");
    whole.push(log);
    let explanation = explain(&whole.finish(), &ExplainOptions::default());
    let report = Report::from_explanation(&explanation);
    assert!(report.to_limited_text(MAX_LINES, "--full").lines().count() <= MAX_LINES);

    // What arrives in pieces is the same log.
    let mut pieces = LogScanner::new("");
    for piece in log.chunks(7) {
        pieces.push(piece);
    }
    assert!(explain(&pieces.finish(), &ExplainOptions::default()) == explanation);

    // The map of a pool in binary form is recognized by its first bytes, which anything may begin with.
    if let Some(map) = Log::from_memory_dump(log, String::new()) {
        Report::from_explanation(&explain(&map, &ExplainOptions::default())).to_json();
    }
});
