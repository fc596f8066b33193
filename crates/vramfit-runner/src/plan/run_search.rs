//! The search itself: measures the program as it is, then plans, until there is nothing left to try.

use vramfit_analysis::planning::{CostKind, pareto_front};
use vramfit_base::{ErrorKind, Result};
use vramfit_model::run_config::StepLimit;

use super::measuring::Measuring;
use super::search::{FoundPlans, SearchSpec};
use super::trial::{is_rejection, last_line};
use crate::context::Context;
use crate::interruption;
use crate::messages::Messages;

/// Searches.
///
/// # Errors
/// Those of the dry run of the program as it is. A signal that comes later ends the search with what was found.
pub fn find_plans(
    spec: &SearchSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<FoundPlans> {
    let found = FoundPlans {
        rows: Vec::new(),
        front: Vec::new(),
        recommended: 0,
        faster: None,
        failures: Vec::new(),
        trials: 0,
        sites: 0,
        left_alone: Vec::new(),
        is_complete: true,
        is_interrupted: false,
        cost: CostKind::RecomputedShare,
        edits: Vec::new(),
        jax: String::new(),
        phases: Vec::new(),
        steps: spec.trial.run.steps.unwrap_or(StepLimit::Steady),
    };
    let mut measuring = Measuring { spec, context, messages, found };
    let mut rejection = None;
    for command in 0..spec.commands.len() {
        let begun = match measuring.begin(command) {
            // What was found so far is a result.
            Err(error)
                if error.kind() == ErrorKind::Interrupted && !measuring.found.rows.is_empty() =>
            {
                break;
            }
            Err(error) if is_rejection(&error) => {
                let values = spec.commands[command].values.join(", ");
                let message = format!("{values}: {}", last_line(&error));
                measuring.note_failure(&message);
                rejection = Some(error);
                continue;
            }
            begun => begun?,
        };
        measuring.found.sites += begun.sites;
        let is_complete = measuring.follow(command, begun);
        measuring.found.is_complete &= is_complete;
    }
    if let Some(error) = rejection.filter(|_| measuring.found.rows.is_empty()) {
        return Err(error);
    }
    // What is said to fit is measured as far as the program as it is.
    loop {
        let found = &mut measuring.found;
        (found.recommended, found.faster) = found.choose(spec)?;
        let mut chosen = [Some(found.recommended), found.faster].into_iter().flatten();
        let Some(row) = chosen.find(|row| found.is_unfinished(*row, spec)) else {
            break;
        };
        let has_trials = found.trials < spec.max_trials;
        found.is_complete &= has_trials;
        if !has_trials || measuring.measure_to_the_end(row).is_err() {
            break;
        }
    }
    let front = pareto_front(&measuring.found.plain_rows());
    measuring.measure_elsewhere(&front);
    let mut found = measuring.found;
    found.front = front;
    found.is_interrupted = interruption::received().is_some();
    found.is_complete &= !found.is_interrupted;
    Ok(found)
}
