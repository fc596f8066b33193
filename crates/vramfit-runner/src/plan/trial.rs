//! One dry run of the program with a plan applied.

use std::path::Path;

use vramfit_analysis::analysis::{Condition, Phase, RunSummary};
use vramfit_analysis::planning::{
    LeftAlone, LeftAloneReason, Plan, PlanSettings, PlanSource, RecordedSites, SuggestedEdit,
};
use vramfit_base::{Error, ErrorKind, Result};
use vramfit_model::program::cost::MAX_UNKNOWN_SHARE;
use vramfit_model::run_config::{FEW_CALLS, RunConfig, StepLimit};

use crate::context::Context;
use crate::dryrun::{self, DryrunSpec, MeasuredRun, SettingsSpec};
use crate::files::cannot_write;
use crate::messages::Messages;
use crate::scratch::TempDirectory;

/// A program of this many training steps is run to its end with each plan.
const MAX_SHORT_RUN: u64 = 10;

/// What a dry run has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Peak of the fullest GPU, in bytes; also where it does not fit.
    pub peak_bytes: u64,
    /// What the peak can be if library routines take the most they may, which includes what autotuning chooses; in bytes.
    pub highest_peak_bytes: u64,
    /// Whether every request is met on the GPU; `None` where that depends on how much scratch memory a library takes.
    pub fits: Option<bool>,
    /// What the pool can have: its limit, or what others leave of the GPU.
    pub limit_bytes: u64,
    /// Whether the pool takes its limit at startup.
    pub is_preallocated: bool,
    /// How long a step takes; `None` where no step was detected.
    pub time: Option<StepTime>,
    /// Pinned host memory that its programs take, in bytes.
    pub host_memory_bytes: u64,
    /// What XLA's own rematerialization pass did; `None` where that is not known.
    pub xla_remat: Option<XlaRemat>,
    /// The most bytes at the peak, each with who owns them and where they come from.
    pub largest: Vec<(String, u64)>,
    /// Edits of the program with the peak that no plan makes.
    pub edits: Vec<SuggestedEdit>,
    /// The version of JAX.
    pub jax: String,
    /// What the peak depends on.
    pub conditions: Vec<Condition>,
    /// What began after the first training steps.
    pub phases: Vec<Phase>,
    /// How often the training step was called in a run that was not stopped.
    pub whole_calls: Option<u64>,
}

/// What XLA's own rematerialization pass did to the programs of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct XlaRemat {
    /// Microseconds for what it computes a second time; 0 where it changed nothing.
    pub recomputed_us: f64,
    /// By how much temporaries can grow before it begins, about; 0 where it changed something.
    pub margin_bytes: u64,
}

impl XlaRemat {
    /// XLA rematerializes what exceeds this part of the limit less arguments and results, in percent
    /// (`xla_gpu_memory_limit_slop_factor`).
    const SLOP_FACTOR: u64 = 95;

    fn read(summary: &RunSummary, limit_bytes: u64) -> Option<Self> {
        let executed = || summary.programs.iter().filter(|program| program.calls > 0);
        let recomputed_us = executed()
            .map(|program| program.time.as_ref().map_or(0.0, |time| time.xla_remat_us))
            .sum();
        // Without times nothing is known of the instructions.
        executed().find_map(|program| program.time.as_ref())?;
        let margins = executed().map(|program| {
            let sizes = &program.sizes;
            let held =
                (sizes.argument_bytes + sizes.output_bytes).saturating_sub(sizes.alias_bytes);
            let budget = limit_bytes.saturating_sub(held) / 100 * Self::SLOP_FACTOR;
            budget.saturating_sub(sizes.temp_bytes)
        });
        let margin_bytes = margins.min().filter(|_| recomputed_us == 0.0).unwrap_or(0);
        Some(XlaRemat { recomputed_us, margin_bytes })
    }
}

/// How long a step takes by XLA's cost model, not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// A bound that no run can beat, in microseconds.
    pub low_us: f64,
    /// The estimate, in microseconds.
    pub model_us: f64,
    /// Share of it that the model says nothing about, from 0 to 1.
    pub unknown_share: f64,
    /// Microseconds of the estimate that kernels wait for host memory.
    pub host_wait_us: f64,
}

impl StepTime {
    /// Returns `true` if enough of it is known to compare plans.
    pub(super) fn is_comparable(&self) -> bool {
        self.unknown_share <= MAX_UNKNOWN_SHARE
    }
}

/// Measures a plan for a program.
///
/// # Errors
/// Those of [`dryrun::measure`].
pub fn measure_plan(
    spec: &DryrunSpec,
    plan: &Plan,
    context: &Context,
    messages: &dyn Messages,
) -> Result<Measurement> {
    execute(spec, plan, None, context, messages)
}

/// Runs the program with all functions traced that it differentiates, and returns their sites. A program that fails
/// because something keeps a traced value is run again, with that function left alone.
///
/// # Errors
/// Those of [`dryrun::measure`], and `invalid-file` for a record that cannot be read.
pub(super) fn find_sites(
    spec: &DryrunSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<RecordedSites> {
    let folder = TempDirectory::create()?;
    let file = folder.path().join("sites.jsonl");
    let mut left_alone: Vec<LeftAlone> = Vec::new();
    loop {
        let done = execute(spec, &Plan::default(), Some(&file), context, messages);
        let mut recorded = match std::fs::read_to_string(&file) {
            Ok(text) => RecordedSites::parse(&text)?,
            // No site was called.
            Err(_) => RecordedSites::default(),
        };
        let error = match done {
            Ok(_) => {
                // What keeps a value that is not used does no harm.
                recorded.left_alone.retain(|one| {
                    one.reason != LeftAloneReason::ValueKept || left_alone.contains(one)
                });
                return Ok(recorded);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) => error,
        };
        if recorded.left_alone.len() == left_alone.len() {
            return Err(error);
        }
        left_alone = recorded.left_alone;
        write_left_alone(&file, &left_alone)?;
    }
}

fn execute(
    spec: &DryrunSpec,
    plan: &Plan,
    sites: Option<&Path>,
    context: &Context,
    messages: &dyn Messages,
) -> Result<Measurement> {
    let folder = TempDirectory::create()?;
    let plan_file = folder.path().join("plan.toml");
    // Settings go to the process, the rest to the package in it.
    let changes_program =
        Plan { settings: PlanSettings::default(), ..plan.clone() } != Plan::default();
    if changes_program {
        std::fs::write(&plan_file, plan.to_toml(&PlanSource::default())?)
            .map_err(|error| cannot_write(&plan_file, error))?;
    }
    let spec = DryrunSpec {
        settings: SettingsSpec {
            options: plan.settings.add_to(&spec.settings.options),
            ..spec.settings.clone()
        },
        run: RunConfig {
            plan: changes_program.then(|| plan_file.clone()),
            plan_sites: sites.map(Path::to_owned),
            ..spec.run.clone()
        },
        ..spec.clone()
    };
    dryrun::measure(&spec, context, messages).map(|run| Measurement::new(&run))
}

/// Writes what the next run leaves alone.
fn write_left_alone(file: &Path, left_alone: &[LeftAlone]) -> Result<()> {
    let mut text = String::new();
    for one in left_alone {
        let line = serde_json::to_string(one).map_err(|error| {
            Error::new(ErrorKind::Internal, "a recorded site cannot be written").cause(error)
        })?;
        text = text + &line + "\n";
    }
    std::fs::write(file, text).map_err(|error| cannot_write(file, error))
}

/// Returns the last line that the program printed, which mostly is its error.
pub(super) fn last_line(error: &Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.next_back().unwrap_or(error.message()).to_owned()
}

/// Returns `true` if the program ended with an error of its own.
pub(super) fn is_rejection(error: &Error) -> bool {
    use ErrorKind::{CompilerFailed, GpuNotUsed, ProgramFailed};
    matches!(error.kind(), CompilerFailed | GpuNotUsed | ProgramFailed)
}

impl Measurement {
    fn new(run: &MeasuredRun) -> Self {
        let summary = &run.summary;
        Measurement {
            peak_bytes: run.peak_bytes,
            highest_peak_bytes: highest_peak_bytes(summary).max(run.peak_bytes),
            fits: run.fits,
            limit_bytes: run.limit_bytes,
            is_preallocated: summary.header.preallocate,
            time: summary.step_time.as_ref().map(|time| StepTime {
                low_us: time.low_us,
                model_us: time.model_us,
                unknown_share: time.unknown_share(),
                host_wait_us: time.host_wait_us,
            }),
            host_memory_bytes: host_memory_bytes(summary),
            xla_remat: XlaRemat::read(summary, run.compiler_limit_bytes),
            largest: largest_at_peak(summary),
            edits: SuggestedEdit::find(summary),
            jax: summary.header.jax.clone(),
            conditions: run.conditions.clone(),
            whole_calls: summary
                .step()
                .filter(|_| !Condition::is_stopped(&run.conditions))
                .map(|step| step.calls),
            phases: summary.phases().to_vec(),
        }
    }

    /// Returns after which training steps runs with plans end, so that each has begun everything that this run did.
    pub(super) fn steps_with_plans(&self) -> StepLimit {
        if self.whole_calls.is_some_and(|calls| calls <= MAX_SHORT_RUN) {
            return StepLimit::Steady;
        }
        let calls = self.phases.iter().map(|phase| phase.step_calls + 1);
        StepLimit::Calls(calls.max().unwrap_or(0).max(FEW_CALLS))
    }

    /// Returns `true` if a request fails although the pool has as many bytes as the peak.
    pub(super) fn is_fragmented(&self) -> bool {
        self.fits == Some(false) && self.peak_bytes <= self.limit_bytes
    }
}

/// Returns the pinned memory that the program needs most of, of those that were executed.
fn host_memory_bytes(summary: &RunSummary) -> u64 {
    let executed = summary.programs.iter().filter(|program| program.calls > 0);
    let times = executed.filter_map(|program| program.time.as_ref());
    times.map(|time| time.host_memory_bytes).max().unwrap_or(0)
}

fn highest_peak_bytes(summary: &RunSummary) -> u64 {
    let scratch = summary.scratch.iter();
    let peaks = scratch.flat_map(|scratch| &scratch.peak_bytes);
    peaks.copied().max().unwrap_or(0)
}

/// Returns the largest entries of the memory at the peak.
fn largest_at_peak(summary: &RunSummary) -> Vec<(String, u64)> {
    const MAX_ENTRIES: usize = 4;
    let mut entries: Vec<(String, u64)> = Vec::new();
    for entry in summary.attribution.iter().flat_map(|it| &it.parts) {
        let names = [&entry.path, &entry.site, &entry.shape];
        let name = names.into_iter().find(|name| !name.is_empty());
        let label = entry.kind.label();
        let text = name.map_or_else(|| label.to_owned(), |name| format!("{label}, {name}"));
        match entries.iter_mut().find(|(known, _)| *known == text) {
            Some((_, bytes)) => *bytes += entry.bytes,
            None => entries.push((text, entry.bytes)),
        }
    }
    entries.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    entries.truncate(MAX_ENTRIES);
    entries
}
