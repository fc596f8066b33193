//! What plans bring to a program that does not fit, for `vramfit explain`.

use std::path::Path;

use vramfit_analysis::planning::{Moves, Plan, ProgramEdit};
use vramfit_base::{Bytes, Result};
use vramfit_model::settings::Options;

use super::defaults::{all_moves, default_search, default_trial};
use super::run_search::find_plans;
use super::trial::measure_plan;
use crate::context::Context;
use crate::dryrun::DryrunSpec;
use crate::messages::{ErrorsOnly, Messages};
use crate::scratch::TempDirectory;

/// What a change of the program brings, by a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gain {
    /// Peak of the program as it is.
    pub before_bytes: u64,
    /// Peak with the change.
    pub after_bytes: u64,
    /// Whether it fits with the change.
    pub fits: bool,
}

/// What was found for a program.
#[derive(Clone, Debug, Default)]
pub struct PlanGains {
    /// The best plan that changes no setting of the pool: the fastest that fits, else that with the lowest peak.
    pub plan: Option<Gain>,
    /// Donating arguments that the program returns updated, and how `jax.jit` is told.
    pub donation: Option<(Gain, String)>,
}

/// Measures a plan, or searches one, with the pool as it is.
///
/// # Errors
/// Those of the dry run of the program as it is.
pub fn measure_gains(
    dryrun: &DryrunSpec,
    plan: Option<&Path>,
    context: &Context,
    messages: &dyn Messages,
) -> Result<PlanGains> {
    let scratch = TempDirectory::create()?;
    let options = Options::default();
    let run = &dryrun.run;
    let occupied = Some(Bytes(run.occupied_bytes));
    let trial = default_trial(run.gpus.clone(), occupied, options, &dryrun.command, &scratch);
    if let Some(path) = plan {
        let (plan, _) = Plan::read(path)?;
        let before = measure_plan(&trial, &Plan::default(), context, messages)?;
        let after = measure_plan(&trial, &plan, context, messages)?;
        let gain = Gain {
            before_bytes: before.peak_bytes,
            after_bytes: after.peak_bytes,
            fits: after.fits == Some(true),
        };
        return Ok(PlanGains { plan: Some(gain), donation: None });
    }
    let moves = Moves {
        preallocation: false,
        allocator: false,
        larger_pool_bytes: None,
        ..all_moves(&trial.run.gpus.gpu, &options)
    };
    let spec = default_search(moves, trial);
    let found = find_plans(&spec, context, &ErrorsOnly(messages))?;
    let before_bytes = found.rows[0].row.peak_bytes;
    let best = match found.fits(&spec) {
        true => found.recommended,
        false => found.front.first().copied().unwrap_or(0),
    };
    let gain = |after_bytes, fits| Gain { before_bytes, after_bytes, fits };
    let row = &found.rows[best].row;
    let limit_bytes = found.rows[0].limits.first().copied().unwrap_or(0);
    let donation = found.edits.iter().find_map(|tried| match &tried.edit.edit {
        ProgramEdit::Donate(donation) => Some((donation.option(), tried.peak_bytes?)),
        _ => None,
    });
    Ok(PlanGains {
        plan: (row.peak_bytes < before_bytes).then(|| gain(row.peak_bytes, spec.is_met(row))),
        donation: donation
            .filter(|(_, peak)| *peak < before_bytes)
            .map(|(option, peak)| (gain(peak, peak <= limit_bytes), option)),
    })
}
