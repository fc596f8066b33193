//! After the program ended: reports the results, or why there are none.

use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
use vramfit_analysis::analysis::{RunSummary, add_process_exit, most_critical, trace_files};
use vramfit_analysis::report::{Extent, Report};
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_runner::child::ExitReason;
use vramfit_runner::scratch::TempDirectory;
use vramfit_runner::signals::signal_name;

use super::result_files::ResultFiles;
use crate::commands::results::write_page;
use crate::files::write;
use crate::output::Output;
use crate::status::Status;
use crate::trace_progress::load_own;

/// A program that ran.
pub(super) struct FinishedRun {
    pub(super) program: PathBuf,
    pub(super) exit: ExitReason,
    /// Why JAX rejected the program's settings, where it did.
    pub(super) rejected_settings: Option<Error>,
    /// Whether it is known which Python the program runs.
    pub(super) is_python_known: bool,
    /// Where its trace should be.
    pub(super) trace: PathBuf,
    /// Why the trace could not be written to its end.
    pub(super) trace_failure: Option<String>,
    /// The folder of the run, in which the trace is unless it is kept.
    pub(super) _scratch: TempDirectory,
}

/// Signals by which native code ends itself.
const CRASHES: [i32; 5] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV];

/// Reports the results of a run.
///
/// # Errors
/// `compiler-failed` when the program crashed before running out of memory.
pub(super) fn report_outcome(
    run: &FinishedRun,
    summary: &RunSummary,
    files: &ResultFiles,
    output: &mut Output,
) -> Result<Status> {
    write_report(&Report::from_dryrun(summary), files, output)?;
    finish_kept_trace(run, files, output);
    let status = Status::from_answer(summary.fits());
    match run.exit {
        // A program that fails at the virtual GPU's limit ends with 1 as a rule; another end is worth a line.
        exit if status == Status::No && !matches!(exit, ExitReason::Code(0 | 1)) => {
            output.info(&format!("the program {}", exit.describe()));
        }
        ExitReason::Signal(signal) if status == Status::Unknown && CRASHES.contains(&signal) => {
            let programs = summary.programs.iter();
            let count = programs.map(|program| program.compilations).sum::<u64>();
            return Err(crash_error(signal, Some(count)));
        }
        exit if status == Status::Unknown && exit != ExitReason::Code(0) => {
            output.info(&format!("the program {}, but not because of GPU memory", exit.describe()));
        }
        _ => {}
    }
    Ok(status)
}

/// Reads the traces of a run, and returns the summary of the process that decides.
///
/// # Errors
/// `gpu-not-used` when no process used a GPU, `io` when the trace lacks what could change the answer, `internal`
/// when it is not as vramfit writes it.
pub(super) fn summarize_run(run: &FinishedRun, output: &Output) -> Result<RunSummary> {
    let mut summaries = Vec::new();
    for path in trace_files(&run.trace) {
        let mut summary = load_own(&path, output)?;
        summary.process_exit = Some(run.exit.process_exit());
        if summary.used_gpu() {
            summaries.push(summary);
        }
    }
    // A failure before the end of the trace is known; that everything succeeded is not.
    let failed = summaries.iter().any(RunSummary::is_refused);
    if let Some(cause) = run.trace_failure.as_deref().filter(|_| !failed) {
        return Err(truncated_trace_error(&run.trace, cause));
    }
    most_critical(summaries).ok_or_else(|| gpu_not_used_error(run))
}

/// Prints the report, and writes the files but the traces.
pub(super) fn write_report(
    report: &Report,
    files: &ResultFiles,
    output: &mut Output,
) -> Result<()> {
    if files.json_to_stdout {
        output.json_after_program(&report.to_json())?;
    } else {
        let extent =
            if files.full_text { Extent::Full } else { Extent::Brief { option: "--full" } };
        output.report_info(report, extent);
    }
    if let Some(path) = &files.json {
        write(path, &report.to_json(), files.force)?;
        output.info(&format!("JSON written to {}", path.display()));
    }
    write_page(report, files.html.as_deref(), files.force, output)
}

/// Completes a trace that is kept, and says where it is.
pub(super) fn finish_kept_trace(run: &FinishedRun, files: &ResultFiles, output: &mut Output) {
    let Some(path) = &files.trace else { return };
    for trace in trace_files(path) {
        // The results are printed already; a trace that lacks the exit code takes nothing from them.
        if let Err(error) = add_process_exit(&trace, run.exit.process_exit()) {
            output.info(&format!("warning: {error}"));
        }
    }
    output.info(&format!("trace written to {}", path.display()));
}

/// The error for a program that has left no results, as specific as it can be.
fn gpu_not_used_error(run: &FinishedRun) -> Error {
    if let Some(rejected) = &run.rejected_settings {
        return rejected
            .clone()
            .with_kind(ErrorKind::GpuNotUsed)
            .context("JAX rejected its settings");
    }
    match run.exit {
        ExitReason::Signal(signal) if CRASHES.contains(&signal) => crash_error(signal, None),
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

fn crash_error(signal: i32, compiled: Option<u64>) -> Error {
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
pub(crate) fn with_output_tail(error: Error, log: &Path) -> Error {
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
