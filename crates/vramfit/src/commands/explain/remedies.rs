//! Applies remedies, and states what they bring: in replays of a recorded run, or in dry runs of the program.

use std::path::Path;

use vramfit_advice::explain::{Basis, Explanation, Remedy};
use vramfit_analysis::analysis::{self, Comparison, ReplayOverrides, RunSummary};
use vramfit_analysis::{Bytes, Result};
use vramfit_model::allocator::AllocatorKind;
use vramfit_model::settings::{MAX_FRACTION, Options};
use vramfit_model::trace::Reader;
use vramfit_runner::Context;
use vramfit_runner::dryrun::{DryrunSpec, MeasuredRun, SettingsSpec, measure};
use vramfit_runner::plan::{Gain, measure_gains};

use crate::output::Output;

/// A setting that is tried.
struct Candidate {
    id: &'static str,
    text: &'static str,
    /// Options of `vramfit run` that set it.
    options_text: String,
    options: Options,
    /// Whether nobody else is to use the GPU.
    alone: bool,
}

/// Returns the settings that are worth trying.
fn candidates() -> [Candidate; 4] {
    let fraction = MAX_FRACTION;
    let unchanged = Options::default();
    let setting = |id, text, options_text, options| Candidate {
        id,
        text,
        options_text,
        options,
        alone: false,
    };
    [
        setting(
            "raise-fraction",
            "raise JAX's memory fraction to 0.92",
            format!("--fraction {fraction}"),
            Options { fraction: Some(fraction), ..unchanged },
        ),
        setting(
            "cuda-async",
            "use CUDA's allocator, in which free memory need not be contiguous",
            "--allocator cuda_async".to_owned(),
            Options { allocator: Some(AllocatorKind::CudaAsync), ..unchanged },
        ),
        setting(
            "preallocate",
            "preallocate the pool",
            "--preallocate".to_owned(),
            Options { preallocate: Some(true), ..unchanged },
        ),
        Candidate {
            id: "free-gpu",
            text: "end the other processes on the GPU",
            options_text: String::new(),
            options: unchanged,
            alone: true,
        },
    ]
}

/// What a remedy was found to do.
#[derive(Clone, Copy)]
struct Effect {
    /// Bytes that it saves or makes available.
    bytes: u64,
    /// Whether the program fits with it; `None` where the record ends before that is known.
    fits: Option<bool>,
}

impl Effect {
    fn describe(self) -> &'static str {
        match self.fits {
            Some(true) => "it fits",
            Some(false) => "not enough by itself",
            // The record of a run that failed ends there.
            None => "the request succeeds",
        }
    }
}

/// Replays a recorded run with each remedy that is a setting.
///
/// # Errors
/// Those of reading the trace.
pub(super) fn apply_in_replay(
    explanation: &mut Explanation,
    trace: &Path,
    command: &str,
) -> Result<()> {
    for candidate in candidates() {
        let settings = ReplayOverrides {
            options: candidate.options,
            occupied_bytes: candidate.alone.then_some(0),
            ..ReplayOverrides::default()
        };
        // A setting that the release or the GPU does not have is no remedy.
        let Ok(comparison) = analysis::compare(&mut Reader::open(trace)?, &settings) else {
            continue;
        };
        if let Some(effect) = effect_of_replay(&comparison) {
            add(explanation, &candidate, effect, Basis::Replay, command);
        }
    }
    Ok(())
}

/// Returns what changed; `None` where nothing did.
fn effect_of_replay(comparison: &Comparison) -> Option<Effect> {
    let before = comparison.before.as_ref()?;
    let capacity =
        |summary: &RunSummary| summary.critical_device().map(|device| device.capacity_bytes);
    let short =
        |summary: &RunSummary| summary.out_of_memory().map_or(0, |failure| failure.short_bytes());
    let gained = capacity(&comparison.after)?.saturating_sub(capacity(before)?);
    let no_longer_short = short(before).saturating_sub(short(&comparison.after));
    let bytes = match gained {
        0 => no_longer_short,
        gained => gained,
    };
    let fits = comparison.fits();
    // What brings nothing is not worth a line.
    let helps = fits != Some(false) || no_longer_short > 0;
    (bytes > 0 && helps).then_some(Effect { bytes, fits })
}

fn add(
    explanation: &mut Explanation,
    candidate: &Candidate,
    effect: Effect,
    basis: Basis,
    command: &str,
) {
    let shown = match candidate.options_text.as_str() {
        "" => "vramfit top".to_owned(),
        options => format!("vramfit run {options} -- {command}"),
    };
    explanation.add_measured(Remedy {
        id: candidate.id,
        text: candidate.text.to_owned(),
        command: shown,
        bytes: Some(effect.bytes),
        basis,
        outcome: effect.describe().to_owned(),
    });
}

/// A program that remedies are tried on.
pub(super) struct Program<'a> {
    /// The dry run of the program as it is.
    pub(super) dryrun: DryrunSpec,
    /// A plan to apply, instead of one that is searched for.
    pub(super) plan: Option<&'a Path>,
    /// The command as it is shown.
    pub(super) shown: &'a str,
}

impl Program<'_> {
    fn gpu(&self) -> &str {
        &self.dryrun.run.gpus.gpu.name
    }

    /// Makes a dry run with some options.
    fn measure(&self, options: Options, context: &Context, output: &Output) -> Result<MeasuredRun> {
        let settings = SettingsSpec { options, ..self.dryrun.settings.clone() };
        let spec = DryrunSpec { settings, ..self.dryrun.clone() };
        measure(&spec, context, output)
    }

    /// Applies each remedy in a dry run, and adds what it brings.
    ///
    /// # Errors
    /// Those of the dry run of the program as it is.
    pub(super) fn apply_in_dryrun(
        &self,
        explanation: &mut Explanation,
        context: &Context,
        output: &mut Output,
    ) -> Result<()> {
        output.info(&format!("dry run of the program as it is on {}", self.gpu()));
        let before = self.measure(Options::default(), context, output)?;
        if before.fits == Some(true) {
            let peak = Bytes(before.peak_bytes);
            let limit = Bytes(before.limit_bytes);
            explanation.notes.push(format!(
                "in a dry run on {} the program fits: peak {peak} of {limit}; on the GPU something was \
                 different",
                self.gpu()
            ));
            return Ok(());
        }
        for candidate in candidates().iter().filter(|candidate| !candidate.alone) {
            output.info(&format!("dry run with `{}`", candidate.options_text));
            let after = match self.measure(candidate.options, context, output) {
                Ok(after) => after,
                Err(error) => {
                    output.verbose(&error.to_string());
                    continue;
                }
            };
            let gained = after.limit_bytes.saturating_sub(before.limit_bytes);
            let saved = before.peak_bytes.saturating_sub(after.peak_bytes);
            let bytes = gained.max(saved);
            if after.fits == Some(true) || bytes > 0 {
                let effect = Effect { bytes, fits: after.fits };
                add(explanation, candidate, effect, Basis::Dryrun, self.shown);
            }
        }
        self.apply_plans(explanation, context, output)
    }

    fn apply_plans(
        &self,
        explanation: &mut Explanation,
        context: &Context,
        output: &mut Output,
    ) -> Result<()> {
        output.info(match self.plan {
            Some(_) => "dry run with the plan",
            None => "searching a plan: some dozen dry runs",
        });
        let gains = measure_gains(&self.dryrun, self.plan, context, output)?;
        let effect = |gain: Gain| Effect {
            bytes: gain.before_bytes - gain.after_bytes.min(gain.before_bytes),
            fits: Some(gain.fits),
        };
        if let Some(gain) = gains.plan {
            let command = match self.plan {
                Some(path) => format!("vramfit run --plan {} -- {}", path.display(), self.shown),
                None => format!("vramfit run --fit -- {}", self.shown),
            };
            let (after, before) = (Bytes(gain.after_bytes), Bytes(gain.before_bytes));
            explanation.add_measured(Remedy {
                id: "plan",
                text: format!(
                    "recompute or offload activations, without editing the script (peak {after} instead \
                     of {before})"
                ),
                command,
                bytes: Some(effect(gain).bytes),
                basis: Basis::Dryrun,
                outcome: effect(gain).describe().to_owned(),
            });
        }
        if let Some((gain, option)) = gains.donation {
            explanation.add_measured(Remedy {
                id: "donate",
                text: format!(
                    "donate arguments that are returned updated, `jax.jit(..., {option})`"
                ),
                command: format!("vramfit dryrun --gpu {} -- {}", self.gpu(), self.shown),
                bytes: Some(effect(gain).bytes),
                basis: Basis::Dryrun,
                outcome: effect(gain).describe().to_owned(),
            });
        }
        Ok(())
    }
}
