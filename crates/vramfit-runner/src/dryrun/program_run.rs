//! A program that ran in a dry run: its results, or why there are none.

use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
use vramfit_analysis::analysis::{RunSummary, load_process, most_critical, trace_files};
use vramfit_base::{Error, ErrorKind, Result};

use crate::child::ExitReason;
use crate::messages::Messages;
use crate::scratch::TempDirectory;
use crate::signals::signal_name;

/// A program that ran.
pub(super) struct ProgramRun {
    /// Its file.
    pub(super) program: PathBuf,
    pub(super) exit: ExitReason,
    /// Why JAX rejected the program's settings, where it did.
    pub(super) rejected_settings: Option<Error>,
    /// Whether it is known which Python the program runs.
    pub(super) is_python_known: bool,
    /// Where its trace should be.
    pub(super) trace: PathBuf,
    /// Whether the trace is kept.
    pub(super) is_trace_kept: bool,
    /// Why the trace could not be written to its end.
    pub(super) trace_failure: Option<String>,
    /// The folder of the run, in which the trace is unless it is kept.
    pub(super) _scratch: TempDirectory,
}

/// Signals by which native code ends itself.
const CRASHES: [i32; 5] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV];

impl ProgramRun {
    /// Reads the traces, and returns the summary of the process that decides.
    ///
    /// # Errors
    /// `gpu-not-used` when no process used a GPU, `io` when the trace lacks what could change the answer, `internal`
    /// when it is not as vramfit writes it.
    pub(super) fn summarize(&self, messages: &dyn Messages) -> Result<RunSummary> {
        let mut summaries = Vec::new();
        for path in trace_files(&self.trace) {
            let mut summary = load_own(&path, messages)?;
            summary.process_exit = Some(self.exit.process_exit());
            if summary.used_gpu() {
                summaries.push(summary);
            }
        }
        // A failure before the end of the trace is known; that everything succeeded is not.
        let failed = summaries.iter().any(RunSummary::is_refused);
        if let Some(cause) = self.trace_failure.as_deref().filter(|_| !failed) {
            return Err(truncated_trace_error(&self.trace, cause));
        }
        most_critical(summaries).ok_or_else(|| gpu_not_used_error(self))
    }
}

/// Reads the trace of a process that vramfit has just run.
fn load_own(path: &Path, messages: &dyn Messages) -> Result<RunSummary> {
    let summary = load_process(path, u64::MAX, &|events| messages.reading(events));
    summary.map_err(|error| match error.kind() {
        ErrorKind::InvalidFile => error
            .with_kind(ErrorKind::Internal)
            .hint("keep the trace (`--trace`) and report this; no result is reliable"),
        _ => error,
    })
}

/// The error for a program that has left no results, as specific as it can be.
fn gpu_not_used_error(run: &ProgramRun) -> Error {
    if let Some(rejected) = &run.rejected_settings {
        return rejected
            .clone()
            .with_kind(ErrorKind::GpuNotUsed)
            .context("JAX rejected its settings");
    }
    match run.exit {
        ExitReason::Signal(signal) if is_crash(signal) => crash_error(signal, None),
        ExitReason::Code(0) => {
            let error = Error::new(ErrorKind::GpuNotUsed, "the program never used the GPU");
            if run.is_python_known {
                error.hint(
                    "it may select another device itself (`jax_platforms`, `jax_default_device`), \
                     or end before its first JAX operation",
                )
            } else {
                let name = run.program.file_name().unwrap_or(run.program.as_os_str());
                error.hint(format!(
                    "`{}` must pass `PYTHONPATH` and `JAX_PLATFORMS` on to the Python that it starts",
                    name.to_string_lossy()
                ))
            }
        }
        exit => Error::new(
            ErrorKind::GpuNotUsed,
            format!("the program {} before it used the GPU", exit.describe()),
        )
        .hint(output_hint()),
    }
}

/// The error for a trace that ends before the run did.
fn truncated_trace_error(trace: &Path, cause: &str) -> Error {
    let message = "the trace could not be written completely, so there are no results";
    let folder = trace.parent().unwrap_or(trace).display();
    Error::io(message).cause(cause).hint(format!(
        "free disk space in `{folder}`, or use another directory: `--trace FILE`, or `TMPDIR=DIR` without one"
    ))
}

/// Returns `true` if native code ends itself by a signal.
pub(super) fn is_crash(signal: i32) -> bool {
    CRASHES.contains(&signal)
}

/// The error for a program that a signal has ended, after so many programs were compiled.
pub(super) fn crash_error(signal: i32, compiled: Option<u64>) -> Error {
    let name = signal_name(signal);
    let when = match compiled {
        Some(1) => "after compiling 1 program".to_owned(),
        Some(count) => format!("after compiling {count} programs"),
        None => "before it used the GPU".to_owned(),
    };
    Error::new(ErrorKind::CompilerFailed, format!("the program was killed by {name} {when}"))
        .hint(output_hint())
}

/// Points at the program's own output, and at the commonest reason why XLA ends a process.
fn output_hint() -> &'static str {
    if std::env::var_os("XLA_FLAGS").is_some_and(|flags| !flags.is_empty()) {
        "see its last output above; XLA also aborts if it does not know a flag in `XLA_FLAGS`"
    } else {
        "see its last output above"
    }
}

/// Adds the end of the output of the program, which was not shown; not to an error that is not the program's.
pub fn with_output_tail(error: Error, log: &Path) -> Error {
    match output_tail(log) {
        tail if tail.is_empty() || error.kind() == ErrorKind::Interrupted => error,
        tail => error.cause(tail),
    }
}

/// Returns the last lines of a log; empty where there is none.
pub(super) fn output_tail(log: &Path) -> String {
    const MAX_LINES: usize = 12;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(MAX_LINES)..].join("\n")
}
