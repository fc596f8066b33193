//! The largest number in the command with which the program fits, with a certificate: it fits, and the next
//! larger one that the program accepts does not, both measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use vramfit_analysis::analysis::Condition;
use vramfit_analysis::planning::{LargestNumber, LargestSearch, Measured, Plan};
use vramfit_analysis::report::{conditions_json, qualify_headline};
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_runner::Context;
use vramfit_runner::dryrun::DryrunSpec;

use super::trial::{Measurement, is_rejection, last_line, measure_plan};
use super::vary::{NumberRange, substitute};
use crate::output::Output;

/// What is searched.
pub(super) struct LargestSpec {
    pub(super) number: NumberRange,
    pub(super) trial: DryrunSpec,
    /// Bytes that the peak may have, instead of what the GPU can hold.
    pub(super) budget: Option<Bytes>,
    pub(super) max_trials: u32,
}

/// What was found.
struct Found {
    largest: LargestNumber,
    /// What the peak may have.
    limit_bytes: u64,
    /// What the peak of the largest number that fits depends on.
    conditions: Vec<Condition>,
    /// Why the search ended before it had an answer.
    stopped: Option<Error>,
}

/// Searches, and returns whether a number fits, with the results as text and JSON.
///
/// # Errors
/// Those of a dry run, unless a number was measured before; what the program says where it accepts no number.
pub(super) fn run(
    spec: &LargestSpec,
    context: &Context,
    output: &mut Output,
) -> Result<(Option<bool>, String, Value)> {
    let found = search(spec, context, output)?;
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

fn search(spec: &LargestSpec, context: &Context, output: &mut Output) -> Result<Found> {
    let quiet = output.quiet();
    let name = &spec.number.name;
    let mut search = LargestSearch::new(spec.number.numbers);
    let mut limit_bytes = 0;
    let mut conditions = BTreeMap::new();
    let mut stopped = None;
    let mut rejection = None;
    while let Some(number) = search.next_number() {
        if search.trials() >= spec.max_trials {
            stopped = Some(
                Error::new(ErrorKind::TimeLimit, "the search took all of its dry runs")
                    .hint("allow more with `--max-trials`, or give a smaller range"),
            );
            break;
        }
        let trial = DryrunSpec {
            command: substitute(&spec.trial.command, name, &number.to_string()),
            ..spec.trial.clone()
        };
        match measure_plan(&trial, &Plan::default(), context, &quiet) {
            Ok(measurement) => {
                let measured = spec.compare_with_limit(&measurement);
                let fits = match (measured.fits, measurement.fits) {
                    (true, _) => "fits",
                    (false, None) => "may fit",
                    (false, _) => "does not fit",
                };
                let peak = Bytes(measured.peak_bytes);
                output.info(&format!("  {name}={number}: {fits}, peak {peak}"));
                limit_bytes = measured.limit_bytes;
                conditions.insert(number, measurement.conditions);
                search.add_measured(number, measured);
            }
            Err(error) if is_rejection(&error) => {
                let message = last_line(&error);
                output.info(&format!("  {name}={number}: not accepted: {message}"));
                search.add_rejected(number, message);
                rejection = Some(error);
            }
            Err(error) if conditions.is_empty() => return Err(error),
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
    }
    let largest = search.found();
    if let Some(error) = rejection.filter(|_| conditions.is_empty()) {
        let tried = largest.rejected.len();
        return Err(error.context(format!(
            "none of {tried} numbers for `{{{name}}}` was accepted by the program"
        )));
    }
    let conditions = largest.fits.and_then(|(number, _)| conditions.remove(&number));
    Ok(Found { conditions: conditions.unwrap_or_default(), largest, limit_bytes, stopped })
}

impl LargestSpec {
    fn compare_with_limit(&self, measurement: &Measurement) -> Measured {
        let peak_bytes = measurement.peak_bytes;
        match self.budget {
            Some(budget) => {
                Measured { peak_bytes, limit_bytes: budget.0, fits: peak_bytes <= budget.0 }
            }
            None => Measured {
                peak_bytes,
                limit_bytes: measurement.limit_bytes,
                fits: measurement.fits == Some(true),
            },
        }
    }
}

fn to_json(found: &Found, spec: &LargestSpec) -> Value {
    let largest = &found.largest;
    let rejected = largest.rejected.iter();
    let rejected = rejected.map(|(number, error)| json!({"number": number, "error": error}));
    json!({
        "schema": 1,
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

fn describe(found: &Found, spec: &LargestSpec) -> String {
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
