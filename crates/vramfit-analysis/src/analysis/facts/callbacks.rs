//! Python functions that programs call while they run, by the line that put the call into the program.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Fact;
use crate::section::phrases::line_or_unknown;
use crate::section::{Content, Section, Table, Value};
use crate::trace::{CallbackSkip, Event, TextId};

/// Lines that a report lists.
const MAX_SHOWN: usize = 10;

/// Calls of a Python function from programs whose values were not computed. Where the values are
/// known, functions are called with them as on a GPU, and not counted here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallbackLine {
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
struct LineCounts {
    calls: u64,
    errors: u64,
    error: TextId,
    skipped: u64,
    reason: Option<CallbackSkip>,
}

/// Counts calls of Python functions by line.
#[derive(Debug, Default)]
pub(in crate::analysis) struct CallbackCounts(FxHashMap<TextId, LineCounts>);

impl Fact for CallbackCounts {
    type Result = Vec<CallbackLine>;

    fn on(&mut self, event: &Event) {
        match *event {
            Event::Callback { site, calls, errors, error } => {
                let line = self.0.entry(site).or_default();
                line.calls = line.calls.saturating_add(calls);
                line.errors = line.errors.saturating_add(errors);
                if errors > 0 {
                    line.error = error;
                }
            }
            Event::CallbackSkipped { site, calls, reason } => {
                let line = self.0.entry(site).or_default();
                line.skipped = line.skipped.saturating_add(calls);
                line.reason = Some(reason);
            }
            _ => {}
        }
    }

    /// Those that were called or skipped most often come first.
    fn finish(&self, text: &dyn Fn(TextId) -> String) -> Vec<CallbackLine> {
        let lines = self.0.iter().map(|(site, line)| CallbackLine {
            site: text(*site),
            calls: line.calls,
            errors: line.errors,
            error: text(line.error),
            skipped: line.skipped,
            skip_reason: line.reason,
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by(|a, b| {
            let often = |line: &CallbackLine| line.calls.saturating_add(line.skipped);
            (often(b), &a.site).cmp(&(often(a), &b.site))
        });
        lines
    }
}

/// Shows the functions that programs called with placeholders, or did not call.
pub fn section(lines: &[CallbackLine]) -> Option<Section> {
    let rows = lines.iter().take(MAX_SHOWN).map(|line| {
        let skipped = match line.skip_reason {
            None => Value::Count(line.skipped),
            Some(reason) => Value::Text(format!("{} ({})", line.skipped, describe(reason))),
        };
        vec![
            Value::Text(line_or_unknown(&line.site).to_owned()),
            Value::Count(line.calls),
            Value::Count(line.errors),
            skipped,
        ]
    });
    let more = lines.len().saturating_sub(MAX_SHOWN);
    let failed = lines.iter().find(|line| line.errors > 0);
    let mut notes = Vec::new();
    notes.extend((more > 0).then(|| format!("{more} more lines in the JSON output")));
    notes.extend(failed.map(|line| {
        let error = line.error.lines().next().unwrap_or_default();
        let site = line_or_unknown(&line.site);
        format!("errors are not raised in the program; the last at {site}: {error}")
    }));
    let columns = ["line", "calls", "errors", "skipped"];
    let table = Table::new(&columns, rows.collect(), notes.join("; "));
    let title = "host callbacks with placeholder arguments";
    (!lines.is_empty()).then(|| Section::new(title, Content::Table(table)))
}

fn describe(reason: CallbackSkip) -> &'static str {
    match reason {
        CallbackSkip::Results => "placeholder result",
        CallbackSkip::Request => "`--callbacks skip`",
        CallbackSkip::Branch => "branch not taken",
        CallbackSkip::Bound => "limit reached",
    }
}
