//! One dry run of the program with a plan applied.

use std::ffi::OsString;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vramfit_core::analysis::{self, RunSummary, Settings, load_summary, trace_files};
use vramfit_core::gpu::{self, GpuSelection};
use vramfit_core::program::cost::MAX_UNKNOWN_SHARE;
use vramfit_core::search::{Plan, PlanSettings, PlanSource, Site, read_sites};
use vramfit_core::settings::Options;
use vramfit_core::trace::{ProgramExit, Reader};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::compile_cache::CompileCache;
use super::program_edit::ProgramEdit;
use crate::child::signal_name;
use crate::commands::dryrun::{self, DryrunSpec, ResultFiles, SettingsSpec};
use crate::context::Context;
use crate::files::cannot_write;
use crate::output::Output;
use crate::scratch::ScratchFolder;

/// How long a dry run may take unless the user says otherwise.
pub(super) const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(15 * 60);

/// What all dry runs of a search have in common.
#[derive(Clone, Debug)]
pub(super) struct TrialSpec {
    pub(super) gpus: GpuSelection,
    pub(super) settings: SettingsSpec,
    /// What other processes hold on each GPU.
    pub(super) occupied: Option<Bytes>,
    pub(super) steps: u64,
    pub(super) step: Option<String>,
    /// Rates measured on a GPU of this model.
    pub(super) calibration: Option<PathBuf>,
    /// When to kill a program.
    pub(super) time_limit: Duration,
    pub(super) cache: CompileCache,
    pub(super) command: Vec<OsString>,
}

/// What a dry run has measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measurement {
    /// Peak of the fullest GPU, in bytes; also where it does not fit.
    pub(super) peak_bytes: u64,
    /// Whether every request is met on the GPU.
    pub(super) fits: bool,
    /// What the pool can have: its limit, or what others leave of the GPU.
    pub(super) limit_bytes: u64,
    /// Whether the pool takes its limit at startup.
    pub(super) is_preallocated: bool,
    /// How long a step takes; `None` where no step was detected.
    pub(super) time: Option<StepTime>,
    /// Pinned memory of the host that its programs take, in bytes.
    pub(super) host_memory_bytes: u64,
    /// What XLA's own rematerialization pass did; `None` where that is not known.
    pub(super) xla_remat: Option<XlaRemat>,
    /// The most bytes at the peak, each with who owns them and where they come from.
    pub(super) largest: Vec<(String, u64)>,
    /// Edits of the program with the peak that no plan makes.
    pub(super) edits: Vec<ProgramEdit>,
    /// The version of JAX.
    pub(super) jax: String,
}

/// What XLA's own rematerialization pass did to the programs of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct XlaRemat {
    /// Microseconds for what it computes a second time; 0 where it changed nothing.
    pub(super) recomputed_us: f64,
    /// By how much temporaries can grow before it begins, about; 0 where it changed something.
    pub(super) margin_bytes: u64,
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
        Some(XlaRemat {
            recomputed_us,
            margin_bytes,
        })
    }
}

/// How long a step takes by XLA's cost model, not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepTime {
    /// A bound that no run can beat, in microseconds.
    pub(super) low_us: f64,
    /// The estimate, in microseconds.
    pub(super) model_us: f64,
    /// Share of it that the model says nothing about, from 0 to 1.
    pub(super) unknown_share: f64,
    /// Microseconds of the estimate that kernels wait for memory of the host.
    pub(super) host_wait_us: f64,
}

impl Measurement {
    /// Says whether a request fails although the pool has as many bytes as the peak.
    pub(super) fn is_fragmented(&self) -> bool {
        !self.fits && self.peak_bytes <= self.limit_bytes
    }
}

impl StepTime {
    /// Says whether enough of it is known to compare plans.
    pub(super) fn is_comparable(&self) -> bool {
        self.unknown_share <= MAX_UNKNOWN_SHARE
    }
}

impl TrialSpec {
    /// Measures a plan.
    ///
    /// The pool of the dry run has no limit, so that the peak is known also where it does not fit; whether
    /// it does is found by replaying the same requests through the pool of the GPU.
    ///
    /// # Errors
    /// Those of the dry run; what the program printed last is added.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        context: &Context,
        output: &Output,
    ) -> Result<Measurement> {
        self.execute(plan, None, context, output)
    }

    /// Returns the total memory of each GPU, where it is not what the catalogue says.
    fn total(&self) -> Option<Bytes> {
        let total_bytes = self.gpus.gpu.total_memory_bytes;
        let known = gpu::find(&self.gpus.name).ok()?;
        (known.total_memory_bytes != total_bytes).then_some(Bytes(total_bytes))
    }

    /// Runs the program with all of its sites traced, and returns them.
    pub(super) fn find_sites(&self, context: &Context, output: &Output) -> Result<Vec<Site>> {
        let folder = create_scratch()?;
        let file = folder.path().join("sites.jsonl");
        self.execute(&Plan::default(), Some(&file), context, output)?;
        match std::fs::read_to_string(&file) {
            Ok(text) => read_sites(&text),
            // No site was called.
            Err(_) => Ok(Vec::new()),
        }
    }

    fn execute(
        &self,
        plan: &Plan,
        sites: Option<&Path>,
        context: &Context,
        output: &Output,
    ) -> Result<Measurement> {
        let folder = create_scratch()?;
        let (trace, log) = (
            folder.path().join("run.trace"),
            folder.path().join("output.log"),
        );
        let plan_file = folder.path().join("plan.toml");
        // Settings go to the process, the rest to the package in it.
        let changes_program = Plan {
            settings: PlanSettings::default(),
            ..plan.clone()
        } != Plan::default();
        let settings = SettingsSpec {
            options: plan.settings.add_to(&self.settings.options),
            ..self.settings.clone()
        };
        if changes_program {
            std::fs::write(&plan_file, plan.to_toml(&PlanSource::default())?)
                .map_err(|error| cannot_write(&plan_file, error))?;
        }
        let spec = DryrunSpec {
            steps: Some(self.steps),
            step: self.step.clone(),
            calibration: self.calibration.clone(),
            settings: settings.clone(),
            plan: changes_program.then(|| plan_file.clone()),
            plan_sites: sites.map(Path::to_owned),
            total: self.total(),
            occupied: self.occupied,
            unlimited: true,
            compilation_cache: Some(self.cache.directory(self, &settings.options)),
            time_limit: Some(self.time_limit),
            log: Some(log.clone()),
            results: ResultFiles {
                trace: Some(trace.clone()),
                ..ResultFiles::default()
            },
            ..DryrunSpec::new(self.gpus.clone(), self.command.clone())
        };
        dryrun::execute(&spec, context, &mut output.quiet())
            .map_err(|error| with_output_tail(error, &log))?;
        self.read(&trace, settings.options)
            .map_err(|error| with_output_tail(error, &log))
    }

    /// Reads what a trace has measured.
    fn read(&self, trace: &Path, options: Options) -> Result<Measurement> {
        let summary = load_summary(trace)?;
        let fullest = summary
            .devices
            .iter()
            .max_by_key(|device| device.peak_bytes);
        let fullest = fullest
            .filter(|device| device.peak_bytes > 0)
            .ok_or_else(|| {
                Error::new(ErrorKind::GpuNotUsed, "the program used no GPU")
                    .hint("`vramfit doctor` checks whether JAX finds a GPU")
            })?;
        if let Some(error) = &summary.uncaught_error {
            let text = format!("the program failed in the dry run: {}", error.message);
            return Err(Error::new(ErrorKind::CompilerFailed, text));
        }
        if summary.fits().is_none() {
            let how = match summary.program_exit {
                Some(ProgramExit {
                    signal: Some(signal),
                    ..
                }) => {
                    format!("was killed by {}", signal_name(signal))
                }
                Some(ProgramExit {
                    code: Some(code), ..
                }) => format!("ended with exit code {code}"),
                _ => "ended".to_owned(),
            };
            let text = format!("the program {how} in the dry run, before it was measured");
            return Err(Error::new(ErrorKind::CompilerFailed, text));
        }
        let settings = Settings {
            gpu: Some(self.gpus.gpu.clone()),
            options,
            occupied_bytes: self.occupied.map(|occupied| occupied.0),
        };
        let (mut fits, mut limit_bytes) = (true, u64::MAX);
        let mut compiler_limit_bytes = u64::MAX;
        for path in trace_files(trace) {
            let file = File::open(&path).map_err(|error| {
                let message = format!("cannot read the trace `{}`", path.display());
                Error::new(ErrorKind::Io, message).cause(error)
            })?;
            let mut reader = Reader::new(BufReader::new(file))?;
            let comparison = analysis::compare(&mut reader, &settings)?;
            fits &= !comparison.after.is_refused();
            for device in &comparison.after.devices {
                limit_bytes = limit_bytes.min(device.capacity_bytes);
                let limit = device.limit().unwrap_or(device.capacity_bytes);
                compiler_limit_bytes = compiler_limit_bytes.min(limit);
            }
        }
        Ok(Measurement {
            peak_bytes: fullest.peak_bytes,
            fits,
            limit_bytes,
            is_preallocated: summary.header.preallocate,
            time: summary.step_time.as_ref().map(|time| StepTime {
                low_us: time.low_us,
                model_us: time.model_us,
                unknown_share: time.unknown_share(),
                host_wait_us: time.host_wait_us,
            }),
            host_memory_bytes: host_memory_bytes(&summary),
            xla_remat: XlaRemat::read(&summary, compiler_limit_bytes),
            largest: largest_at_peak(&summary),
            edits: ProgramEdit::find(&summary),
            jax: summary.header.jax.clone(),
        })
    }
}

/// Returns the pinned memory that the program needs most of, of those that were executed.
fn host_memory_bytes(summary: &RunSummary) -> u64 {
    let executed = summary.programs.iter().filter(|program| program.calls > 0);
    let times = executed.filter_map(|program| program.time.as_ref());
    times.map(|time| time.host_memory_bytes).max().unwrap_or(0)
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

pub(super) fn create_scratch() -> Result<ScratchFolder> {
    ScratchFolder::create().map_err(|error| {
        Error::new(ErrorKind::Io, "cannot create a temporary directory")
            .cause(error)
            .hint("set `TMPDIR` to a directory that is writable")
    })
}

/// Adds the end of the output of the program, which was not shown.
fn with_output_tail(error: Error, log: &Path) -> Error {
    const MAX_LINES: usize = 12;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    match lines[lines.len().saturating_sub(MAX_LINES)..].join("\n") {
        tail if tail.is_empty() => error,
        tail => error.cause(tail),
    }
}
