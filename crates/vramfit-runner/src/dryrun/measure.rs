//! A dry run that is measured and not reported: for commands that make many.

use std::path::Path;

use vramfit_analysis::analysis::hosts::summarize_hosts;
use vramfit_analysis::analysis::{
    self, Condition, ReplayOverrides, RunSummary, load_summary, trace_files,
};
use vramfit_analysis::report::{describe_condition, describe_mismatch};
use vramfit_base::{Error, ErrorKind, Result};
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{ProcessExit, Reader};

use super::hosts::HostsSpec;
use super::program_run::with_output_tail;
use super::run_hosts::run_hosts;
use super::spec::DryrunSpec;
use crate::context::Context;
use crate::files::cannot_write;
use crate::messages::{ErrorsOnly, Messages};
use crate::scratch::TempDirectory;
use crate::signals::signal_name;

/// What an error begins with that the program has raised.
pub(super) const PROGRAM_FAILED: &str = "the program failed in the dry run: ";

/// What a dry run has measured.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// The run, with a pool that has no limit.
    pub summary: RunSummary,
    /// Peak of the fullest GPU, in bytes; also where it does not fit.
    pub peak_bytes: u64,
    /// Whether every request is met on the GPU; `None` where that depends on how much scratch memory a library takes.
    pub fits: Option<bool>,
    /// What the pool can have: its limit, or what others leave of the GPU.
    pub limit_bytes: u64,
    /// What the compiler may plan with.
    pub compiler_limit_bytes: u64,
    /// What the peak depends on.
    pub conditions: Vec<Condition>,
}

impl MeasuredRun {
    /// Returns `true` if it fits where libraries take little enough scratch memory.
    pub fn may_fit(&self) -> bool {
        self.fits != Some(false)
    }
}

/// Makes a dry run and measures it.
///
/// The pool of the dry run has no limit, so that the peak is known also where it does not fit; whether it
/// does is found by replaying the same requests through the pool of the GPU. The trace is kept where the
/// spec says so.
///
/// # Errors
/// Those of the dry run, and `program-failed` for a program that failed in it; what it printed last is
/// added.
pub fn measure(
    spec: &DryrunSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<MeasuredRun> {
    let folder = TempDirectory::create()?;
    let log = folder.path().join("output.log");
    let trace = spec.trace.clone().unwrap_or_else(|| folder.path().join("run.trace"));
    let spec = DryrunSpec {
        run: RunConfig { unlimited: true, ..spec.run.clone() },
        log: Some(log.clone()),
        trace: Some(trace.clone()),
        ..spec.clone()
    };
    let measured = match &spec.hosts {
        None => super::record(&spec, context, messages)
            .and_then(|_| measure_summary(load_summary(&trace)?, &spec, &trace)),
        Some(hosts) => measure_hosts(&spec, hosts, &trace, context, messages),
    };
    measured.map_err(|error| with_output_tail(error, &log))
}

/// Measures several hosts, and returns the one with the highest peak of those that do not fit, or else of all; its
/// trace is kept.
fn measure_hosts(
    spec: &DryrunSpec,
    hosts: &HostsSpec,
    trace: &Path,
    context: &Context,
    messages: &dyn Messages,
) -> Result<MeasuredRun> {
    let mut worst: Option<(MeasuredRun, &Path)> = None;
    let rank = |run: &MeasuredRun| (severity(run.fits), run.peak_bytes);
    let (programs, runs) = run_hosts(spec, hosts, context, &ErrorsOnly(messages))?;
    for (program, run) in programs.iter().zip(&runs) {
        let measured = measure_summary(run.summary.clone(), spec, &program.trace)?;
        if worst.as_ref().is_none_or(|(known, _)| rank(known) < rank(&measured)) {
            worst = Some((measured, &program.trace));
        }
    }
    let summary = summarize_hosts(&runs, hosts.count, spec.run.gpus.count);
    let mismatches = summary.and_then(|summary| summary.hosts).map(|hosts| hosts.mismatches);
    if let Some(mismatch) = mismatches.unwrap_or_default().first() {
        let text = format!("the hosts do not fit together: {}", describe_mismatch(mismatch));
        return Err(Error::new(ErrorKind::ProgramFailed, text));
    }
    let (measured, kept) = worst.expect("a host without a result is an error");
    std::fs::rename(kept, trace).map_err(|error| cannot_write(trace, error))?;
    Ok(measured)
}

/// Measures a run that came to `summary` in the pool of the GPU.
fn measure_summary(summary: RunSummary, spec: &DryrunSpec, trace: &Path) -> Result<MeasuredRun> {
    let verdict = summary.verdict();
    if let Some(cpu) = verdict.conditions.iter().find(|condition| {
        matches!(condition, Condition::RanOnCpu { .. }) && condition.leaves_open()
    }) {
        return Err(Error::new(ErrorKind::GpuNotUsed, describe_condition(cpu)));
    }
    let peaks = summary.devices.iter().map(|device| device.peak_bytes);
    let peak_bytes = peaks.max().filter(|peak| *peak > 0).ok_or_else(|| {
        Error::new(ErrorKind::GpuNotUsed, "the program used no GPU")
            .hint("`vramfit doctor` checks whether JAX finds a GPU")
    })?;
    if let Some(error) = &summary.uncaught_error {
        let text = format!("{PROGRAM_FAILED}{}", error.message);
        let failed = Error::new(ErrorKind::ProgramFailed, text);
        let mut conditions = verdict.conditions.iter();
        let read = conditions.find(|it| matches!(it, Condition::PlaceholderDecides { .. }));
        return Err(match read {
            Some(read) => failed.hint(describe_condition(read)),
            None => failed,
        });
    }
    if verdict.fits.is_none() {
        let text = match verdict.conditions.first() {
            Some(condition) if condition.leaves_open() && !is_exit(condition) => {
                describe_condition(condition)
            }
            _ => {
                let how = describe_exit(summary.process_exit);
                format!("the program {how} in the dry run, before it was measured")
            }
        };
        return Err(Error::new(ErrorKind::ProgramFailed, text));
    }
    // On the GPU itself, whose pool is limited.
    let settings = ReplayOverrides { options: spec.settings.options, ..ReplayOverrides::default() };
    let mut run = MeasuredRun {
        conditions: verdict.conditions,
        summary,
        peak_bytes,
        fits: Some(true),
        limit_bytes: u64::MAX,
        compiler_limit_bytes: u64::MAX,
    };
    for path in trace_files(trace) {
        let comparison = analysis::compare(&mut Reader::open(&path)?, &settings)?;
        // The pool of the run had room for everything.
        let mut conditions = comparison.after.verdict().conditions.into_iter();
        let scratch = conditions.find(Condition::is_library_scratch);
        let fits = match (comparison.after.is_refused(), &scratch) {
            (true, _) => Some(false),
            (false, Some(_)) => None,
            (false, None) => Some(true),
        };
        run.fits = [run.fits, fits].into_iter().max_by_key(|fits| severity(*fits)).flatten();
        run.conditions.extend(scratch);
        for device in &comparison.after.devices {
            run.limit_bytes = run.limit_bytes.min(device.capacity_bytes);
            let limit = device.limit().unwrap_or(device.capacity_bytes);
            run.compiler_limit_bytes = run.compiler_limit_bytes.min(limit);
        }
    }
    Ok(run)
}

/// Returns how bad a result is, for the worst of several.
fn severity(fits: Option<bool>) -> u8 {
    match fits {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    }
}

/// Returns `true` if a condition is how the program ended, which the process knows better.
fn is_exit(condition: &Condition) -> bool {
    matches!(condition, Condition::ProcessFailed { .. } | Condition::TraceEndsEarly { .. })
}

fn describe_exit(exit: Option<ProcessExit>) -> String {
    match exit {
        Some(ProcessExit { signal: Some(signal), .. }) => {
            format!("was killed by {}", signal_name(signal))
        }
        Some(ProcessExit { code: Some(code), .. }) => format!("ended with exit code {code}"),
        _ => "ended".to_owned(),
    }
}
