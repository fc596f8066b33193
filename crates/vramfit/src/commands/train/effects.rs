//! Keys that have no effect on a run of this length: an error where nothing would be learnt, else told.

use vramfit_core::train::Config;
use vramfit_core::{Error, ErrorKind, Result};

use super::datasets::Look;
use crate::commands::data::grouped;

/// Returns what is worth a warning.
///
/// # Errors
/// `invalid-argument` when the parameters would never change.
pub(super) fn check(config: &Config, look: &Look) -> Result<Vec<String>> {
    let (optimizer, training) = (&config.optimizer, &config.training);
    let accumulate = optimizer.accumulate;
    let batches = look.steps.saturating_mul(training.epochs);
    if accumulate > batches {
        let message = format!(
            "`accumulate` is {}, and the run has {} batches: the parameters would never change",
            grouped(accumulate),
            grouped(batches)
        );
        let hint = format!("`--set optimizer.accumulate={batches}` at most, or more epochs");
        return Err(Error::new(ErrorKind::InvalidArgument, message).hint(hint));
    }
    let changes = batches / accumulate;
    let mut all = Vec::new();
    if accumulate > look.steps {
        all.push(format!(
            "`accumulate` is {}, and an epoch has {} batches: the parameters change {} times in the whole run",
            grouped(accumulate),
            grouped(look.steps),
            grouped(changes)
        ));
    }
    if let Some(warmup) = optimizer.warmup_steps.filter(|steps| *steps >= changes) {
        all.push(format!(
            "`warmup_steps` is {}, and the parameters change {} times in the run: the learning rate is never reached",
            grouped(warmup),
            grouped(changes)
        ));
    }
    if let Some(every) = config
        .checkpoint
        .every_steps
        .filter(|every| *every > batches)
    {
        all.push(format!(
            "`every_steps` is {}, and the run has {} steps: no checkpoint is made by it",
            grouped(every),
            grouped(batches)
        ));
    }
    if let Some(stop) = training.stop_after.filter(|stop| *stop >= training.epochs) {
        all.push(format!(
            "`stop_after` is {}, and the run has {} epochs: it never stops early",
            grouped(stop),
            grouped(training.epochs)
        ));
    }
    Ok(all)
}
