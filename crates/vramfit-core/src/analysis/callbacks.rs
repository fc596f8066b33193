//! Python functions that programs call while they run, by the line that put the call into the program.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::trace::{CallbackSkip, TextId};

/// Calls of a Python function from programs whose values were not computed. Where the values are
/// known, functions are called with them as on a GPU, and not counted here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallbackSummary {
    /// The line that put the call into the program, empty if not known.
    pub site: String,
    /// How often it was called with placeholder values.
    pub calls: u64,
    /// How many of these calls raised an error, which the program was not told.
    pub errors: u64,
    /// The last of these errors, empty without any.
    pub error: String,
    /// How often it was not called.
    pub skipped: u64,
    /// Why it was not called the last time; `None` if it always was.
    pub skip_reason: Option<CallbackSkip>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallbackCounts {
    calls: u64,
    errors: u64,
    error: TextId,
    skipped: u64,
    reason: Option<CallbackSkip>,
}

/// Counts calls of Python functions.
#[derive(Debug, Default)]
pub(super) struct Callbacks(FxHashMap<TextId, CallbackCounts>);

impl Callbacks {
    pub(super) fn on_called(&mut self, site: TextId, calls: u64, errors: u64, error: TextId) {
        let row = self.0.entry(site).or_default();
        row.calls = row.calls.saturating_add(calls);
        row.errors = row.errors.saturating_add(errors);
        if errors > 0 {
            row.error = error;
        }
    }

    pub(super) fn on_skipped(&mut self, site: TextId, calls: u64, reason: CallbackSkip) {
        let row = self.0.entry(site).or_default();
        row.skipped = row.skipped.saturating_add(calls);
        row.reason = Some(reason);
    }

    /// Returns them by line, the most often called or skipped first.
    pub(super) fn summary(&self, text: &impl Fn(TextId) -> String) -> Vec<CallbackSummary> {
        let rows = self.0.iter().map(|(site, row)| CallbackSummary {
            site: text(*site),
            calls: row.calls,
            errors: row.errors,
            error: text(row.error),
            skipped: row.skipped,
            skip_reason: row.reason,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| {
            let often = |row: &CallbackSummary| row.calls.saturating_add(row.skipped);
            (often(b), &a.site).cmp(&(often(a), &b.site))
        });
        rows
    }
}
