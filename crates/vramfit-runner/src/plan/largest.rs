//! The largest number in the command with which the program fits, with a certificate: it fits, and the next
//! larger one that the program accepts does not, both measured.

use std::collections::BTreeMap;

use vramfit_analysis::analysis::Condition;
use vramfit_analysis::planning::{LargestNumber, LargestSearch, Measured, Plan};
use vramfit_base::{Bytes, Error, ErrorKind, Result};

use super::trial::{Measurement, is_rejection, last_line, measure_plan};
use super::varied::{NumberRange, substitute};
use crate::context::Context;
use crate::dryrun::DryrunSpec;
use crate::messages::Messages;

/// What is searched.
pub struct LargestSpec {
    /// The number.
    pub number: NumberRange,
    /// The dry run of a number, whose command has the placeholder.
    pub trial: DryrunSpec,
    /// Bytes that the peak may have, instead of what the GPU can hold.
    pub budget: Option<Bytes>,
    /// Dry runs at most.
    pub max_trials: u32,
}

/// What was found.
pub struct FoundLargest {
    /// The number, and what was measured beside it.
    pub largest: LargestNumber,
    /// What the peak may have.
    pub limit_bytes: u64,
    /// What the peak of the largest number that fits depends on.
    pub conditions: Vec<Condition>,
    /// Why the search ended before it had an answer.
    pub stopped: Option<Error>,
}

/// Searches.
///
/// # Errors
/// Those of a dry run, unless a number was measured before; what the program says where it accepts no number.
pub fn find_largest(
    spec: &LargestSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<FoundLargest> {
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
        match measure_plan(&trial, &Plan::default(), context, messages) {
            Ok(measurement) => {
                let measured = spec.compare_with_limit(&measurement);
                let fits = match (measured.fits, measurement.fits) {
                    (true, _) => "fits",
                    (false, None) => "may fit",
                    (false, _) => "does not fit",
                };
                let peak = Bytes(measured.peak_bytes);
                messages.info(&format!("  {name}={number}: {fits}, peak {peak}"));
                limit_bytes = measured.limit_bytes;
                conditions.insert(number, measurement.conditions);
                search.add_measured(number, measured);
            }
            Err(error) if is_rejection(&error) => {
                let message = last_line(&error);
                messages.info(&format!("  {name}={number}: not accepted: {message}"));
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
    Ok(FoundLargest { conditions: conditions.unwrap_or_default(), largest, limit_bytes, stopped })
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
