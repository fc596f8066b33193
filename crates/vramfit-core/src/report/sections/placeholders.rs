//! Values that were not computed, and what the program did with their placeholders.

use crate::analysis::RunSummary;
use crate::report::phrases::{file_name, line_or_unknown};
use crate::report::{Content, Section, Table, Value};
use crate::trace::CallbackSkip;

/// Lines with reads that are listed.
const MAX_READS_SHOWN: usize = 5;
/// Lines with host callbacks that are listed.
const MAX_CALLBACKS_SHOWN: usize = 10;
/// Programs without values that are named; the JSON has all.
const MAX_PROGRAMS_NAMED: usize = 3;

/// Where the program read placeholders.
pub(in crate::report) fn reads(summary: &RunSummary) -> Option<Section> {
    let reads = &summary.unknown_reads;
    let has_shapes = reads.iter().any(|line| line.shapes > 0);
    let rows = reads.iter().take(MAX_READS_SHOWN).map(|line| {
        let mut row = vec![
            Value::Text(line_or_unknown(&line.site).to_owned()),
            Value::Count(line.reads),
            Value::Bytes(line.bytes),
        ];
        row.extend(has_shapes.then_some(Value::Count(line.shapes)));
        row
    });
    let mut columns = vec!["line", "reads", "bytes"];
    columns.extend(has_shapes.then_some("shapes"));
    let rest = reads.get(MAX_READS_SHOWN..).unwrap_or_default();
    let note = match rest.len() {
        0 => String::new(),
        lines => {
            let reads: u64 = rest.iter().map(|line| line.reads).sum();
            format!("{lines} more lines with {reads} reads")
        }
    };
    let table = Table::new(&columns, rows.collect(), note);
    let title = "placeholder values that the program read (its control flow may depend on them)";
    (!reads.is_empty()).then(|| Section::new(title, Content::Table(table)))
}

/// Python functions that programs called with placeholders, or did not call.
pub(in crate::report) fn callbacks(summary: &RunSummary) -> Option<Section> {
    let callbacks = &summary.callbacks;
    let rows = callbacks.iter().take(MAX_CALLBACKS_SHOWN).map(|line| {
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
    let more = callbacks.len().saturating_sub(MAX_CALLBACKS_SHOWN);
    let failed = callbacks.iter().find(|line| line.errors > 0);
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
    (!callbacks.is_empty()).then(|| Section::new(title, Content::Table(table)))
}

fn describe(reason: CallbackSkip) -> &'static str {
    match reason {
        CallbackSkip::Results => "placeholder result",
        CallbackSkip::Request => "`--callbacks skip`",
        CallbackSkip::Branch => "branch not taken",
        CallbackSkip::Bound => "limit reached",
    }
}

/// What a result assumes where values that were not computed decide what runs: reads after `if`.
pub(super) fn assumption(
    site: &str,
    expression: Option<&str>,
    value: Option<&str>,
    other_lines: usize,
) -> String {
    let at = match site {
        "" => String::new(),
        site => format!(" at {}", file_name(site)),
    };
    let more = match other_lines {
        0 => String::new(),
        1 => " (and 1 more assumption)".to_owned(),
        count => format!(" (and {count} more assumptions)"),
    };
    match (expression, value) {
        (Some(""), Some(value)) => {
            format!("what is read{at} is {value}{more}")
        }
        (Some(expression), Some(value)) => {
            format!("`{expression}`{at} is {value}{more}")
        }
        _ => format!("the shapes that depend on values{at} are those of their placeholders{more}"),
    }
}

/// Which programs were not computed, and why.
pub(super) fn values_caveats(summary: &RunSummary) -> Vec<String> {
    let programs = &summary.not_computed;
    if programs.iter().any(|program| program.reason == "off") {
        let text = "values that programs compute: with `--no-values` all of them are placeholders";
        return vec![text.to_owned()];
    }
    let named = programs.iter().take(MAX_PROGRAMS_NAMED).map(|program| {
        let seconds = program.spent_ms as f64 / 1000.0;
        let why = match program.reason.as_str() {
            "run_budget" => "the time budget of the run was used up".to_owned(),
            _ if program.spent_ms == 0 => "computing them would take too long".to_owned(),
            _ => format!("computing them took {seconds:.1} s, the time budget of one program"),
        };
        format!(
            "values of `{}`, which are placeholders from some call on: {why}; \
             `VRAMFIT_VALUES_BUDGET` raises the budget, `--no-values` sets it to 0",
            program.program
        )
    });
    let mut points: Vec<_> = named.collect();
    let more = programs.len().saturating_sub(MAX_PROGRAMS_NAMED);
    if more > 0 {
        points.push(format!("values of {more} more programs, for the same reasons"));
    }
    points
}
