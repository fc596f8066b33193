//! Keys that have no effect on a run of this length: a warning, or an error if nothing would be trained.

use vramfit_analysis::{Error, Result};
use vramfit_train::Config;

use super::datasets::DatasetInfo;
use crate::commands::data::grouped;

/// Returns warnings.
///
/// # Errors
/// `invalid-argument` when the parameters would never be updated.
pub(super) fn check(config: &Config, info: &DatasetInfo) -> Result<Vec<String>> {
    let (optimizer, training) = (&config.optimizer, &config.training);
    let accumulate = optimizer.accumulate;
    let batches = config.total_steps(info.steps_per_epoch);
    let epochs = batches.div_ceil(info.steps_per_epoch.max(1));
    if accumulate > batches {
        let message = format!(
            "`accumulate` is {}, but the run has {} batches: the parameters would never be updated",
            grouped(accumulate),
            grouped(batches)
        );
        let hint = format!("use at most `--set optimizer.accumulate={batches}`, or more epochs");
        return Err(Error::invalid_argument(message).hint(hint));
    }
    let updates = batches / accumulate;
    let mut warnings = Vec::new();
    if accumulate > info.steps_per_epoch {
        warnings.push(format!(
            "`accumulate` is {}, but an epoch has {} batches: the parameters are updated {} times in the whole run",
            grouped(accumulate),
            grouped(info.steps_per_epoch),
            grouped(updates)
        ));
    }
    if let Some(warmup) = optimizer.warmup_steps.filter(|steps| *steps >= updates) {
        warnings.push(format!(
            "`warmup_steps` is {}, but the parameters are updated {} times: the peak learning rate is never reached",
            grouped(warmup),
            grouped(updates)
        ));
    }
    if let Some(every) = config.checkpoint.every_steps.filter(|every| *every > batches) {
        warnings.push(format!(
            "`every_steps` is {}, but the run has {} steps: it never triggers a checkpoint",
            grouped(every),
            grouped(batches)
        ));
    }
    let (evaluations, noun) = match training.eval_every {
        Some(every) => (batches / every, "evaluations"),
        None => (epochs, "epochs"),
    };
    if let Some(stop) = training.stop_after.filter(|stop| *stop >= evaluations) {
        warnings.push(format!(
            "`stop_after` is {}, but the run has {} {noun}: it never stops early",
            grouped(stop),
            grouped(evaluations)
        ));
    }
    Ok(warnings)
}
