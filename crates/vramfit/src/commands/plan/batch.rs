//! The largest number in the command with which the program fits, with a certificate: it fits, and the next
//! larger one does not, both measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use vramfit_core::analysis::Condition;
use vramfit_core::planning::{LargestValue, Measured, Plan, largest_value};
use vramfit_core::report::{conditions_json, qualify_headline};
use vramfit_core::{Bytes, Result};

use super::trial::TrialSpec;
use super::vary::{NumberRange, substitute};
use crate::context::Context;
use crate::output::Output;
use crate::status::Status;

/// Searches, and returns the results as text and JSON.
///
/// # Errors
/// Those of a dry run.
pub(super) fn run(
    number: &NumberRange,
    trial: &TrialSpec,
    context: &Context,
    output: &mut Output,
) -> Result<(String, Value, Status)> {
    let quiet = output.quiet();
    let mut limit_bytes = 0;
    let mut conditions = BTreeMap::new();
    let found = largest_value(*number.range.start(), *number.range.end(), |value| {
        let trial = TrialSpec {
            command: substitute(&trial.command, &number.name, &value.to_string()),
            ..trial.clone()
        };
        let measured = trial.measure(&Plan::default(), context, &quiet)?;
        limit_bytes = measured.limit_bytes;
        conditions.insert(value, measured.conditions);
        let answer = if measured.fits {
            "fits"
        } else {
            "does not fit"
        };
        output.info(&format!(
            "  {}={value}: {answer}, peak {}",
            number.name,
            Bytes(measured.peak_bytes)
        ));
        Ok(Measured {
            peak_bytes: measured.peak_bytes,
            limit_bytes: measured.limit_bytes,
            fits: measured.fits,
        })
    })?;
    let largest = found.fits.and_then(|(value, _)| conditions.remove(&value));
    let conditions = largest.unwrap_or_default();
    let json = json!({
        "schema": 1,
        "gpu": trial.gpus.name,
        "limit_bytes": limit_bytes,
        "name": number.name,
        "largest": found.fits.map(|(value, _)| value),
        "largest_peak_bytes": found.fits.map(|(_, peak)| peak),
        "smallest_too_large": found.too_large.map(|(value, _)| value),
        "is_monotonic": found.is_monotonic,
        "trials": found.trials,
        "conditions": conditions_json(&conditions),
    });
    let text = describe(&found, &conditions, number, trial, limit_bytes);
    let status = Status::from_answer(Some(found.fits.is_some()));
    Ok((text, json, status))
}

fn describe(
    found: &LargestValue,
    conditions: &[Condition],
    number: &NumberRange,
    trial: &TrialSpec,
    limit_bytes: u64,
) -> String {
    let (name, gpu, limit) = (&number.name, &trial.gpus.name, Bytes(limit_bytes));
    let mut text = match (found.fits, found.too_large) {
        (Some((value, peak)), Some((next, next_peak))) => qualify_headline(
            &format!("the largest that fits on {gpu} is {name}={value}"),
            &format!(
                "peak {} of {limit}; {name}={next} needs {}",
                Bytes(peak),
                Bytes(next_peak)
            ),
            conditions,
        ),
        (Some((value, peak)), None) => qualify_headline(
            &format!("all of the range fits on {gpu}"),
            &format!("{name}={value} has a peak of {} of {limit}", Bytes(peak)),
            conditions,
        ),
        (None, _) => format!(
            "not even {name}={} fits in {limit} on {gpu}",
            number.range.start()
        ),
    };
    text.push('\n');
    if !found.is_monotonic {
        let _ = writeln!(
            text,
            "the peak does not always grow with {name}; values between those that were measured may fit"
        );
    }
    text
}
