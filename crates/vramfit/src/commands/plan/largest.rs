//! What `vramfit plan` prints of the largest number in the command with which the program fits.

use std::fmt::Write as _;

use serde_json::{Value, json};
use vramfit_analysis::report::{conditions_json, qualify_headline};
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_runner::Context;
use vramfit_runner::plan::{FoundLargest, LargestSpec, find_largest};

use crate::output::Output;

/// Searches, and returns whether a number fits, with the results as text and JSON.
///
/// # Errors
/// Those of a dry run, unless a number was measured before; what the program says where it accepts no number.
pub(super) fn run(
    spec: &LargestSpec,
    context: &Context,
    output: &mut Output,
) -> Result<(Option<bool>, String, Value)> {
    let found = find_largest(spec, context, output)?;
    match &found.stopped {
        Some(error) if error.kind() == ErrorKind::Interrupted => {
            output.info("interrupted; what was found so far:");
        }
        Some(error) => output.info(&format!("{error}\nwhat was found so far:")),
        None => {}
    }
    let answer = Some(found.largest.fits.is_some()).filter(|_| found.stopped.is_none());
    Ok((answer, describe(&found, spec), to_json(&found, spec)))
}

fn to_json(found: &FoundLargest, spec: &LargestSpec) -> Value {
    let largest = &found.largest;
    let rejected = largest.rejected.iter();
    let rejected = rejected.map(|(number, error)| json!({"number": number, "error": error}));
    json!({
        "schema": JSON_SCHEMA,
        "gpu": spec.trial.run.gpus.name,
        "limit_bytes": found.limit_bytes,
        "name": spec.number.name,
        "largest": largest.fits.map(|(number, _)| number),
        "largest_peak_bytes": largest.fits.map(|(_, peak)| peak),
        "smallest_too_large": largest.too_large.map(|(number, _)| number),
        "is_proven": largest.is_proven && found.stopped.is_none(),
        "is_monotonic": largest.is_monotonic,
        "rejected": rejected.collect::<Vec<_>>(),
        "trials": largest.trials,
        "stopped": found.stopped.as_ref().map(Error::message),
        "conditions": conditions_json(&found.conditions),
    })
}

fn describe(found: &FoundLargest, spec: &LargestSpec) -> String {
    let (name, gpu, limit) =
        (&spec.number.name, &spec.trial.run.gpus.name, Bytes(found.limit_bytes));
    let largest = &found.largest;
    let is_proven = largest.is_proven && found.stopped.is_none();
    let mut text = match (largest.fits, largest.too_large) {
        (Some((number, peak)), too_large) => {
            let headline = match (is_proven, too_large) {
                (false, _) => format!("the largest found to fit on {gpu} is {name}={number}"),
                (true, Some(_)) => format!("the largest that fits on {gpu} is {name}={number}"),
                (true, None) => format!("all of the range fits on {gpu}, up to {name}={number}"),
            };
            let mut details = format!("peak {} of {limit}", Bytes(peak));
            if let Some((next, next_peak)) = too_large {
                let _ = write!(details, "; {name}={next} needs {}", Bytes(next_peak));
            }
            qualify_headline(&headline, &details, &found.conditions, "the dry run")
        }
        (None, Some((number, peak))) => {
            format!("not even {name}={number} fits in {limit} on {gpu}: it needs {}", Bytes(peak))
        }
        (None, None) => format!("no number was measured on {gpu}"),
    };
    text.push('\n');
    let after = largest.fits.map_or(0, |(number, _)| number);
    if let Some((number, error)) =
        largest.rejected.range(after..).next().or_else(|| largest.rejected.iter().next())
    {
        let others = match largest.rejected.len() {
            1 => String::new(),
            count => format!(", and {} other numbers", count - 1),
        };
        let _ = writeln!(text, "the program does not accept {name}={number}{others}: {error}");
    }
    if !is_proven && found.stopped.is_none() && largest.fits.is_some() {
        let _ = writeln!(text, "larger numbers that were not tried may be accepted, and fit");
    }
    if largest.is_monotonic == Some(false) {
        let _ = writeln!(
            text,
            "the peak does not always grow with {name}; numbers between those that were measured may fit"
        );
    }
    text
}
