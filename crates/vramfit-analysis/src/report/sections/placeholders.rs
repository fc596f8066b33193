//! Values that were not computed, and what the program did with their placeholders.

use crate::analysis::RunSummary;
use crate::report::phrases::file_name;

/// Programs without values that are named; the JSON has all.
const MAX_PROGRAMS_NAMED: usize = 3;

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
