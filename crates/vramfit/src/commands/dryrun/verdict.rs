//! After the program ended: the answer is read from the trace and told, or why there is none.

use std::path::Path;

use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
use vramfit_core::analysis::RunSummary;
use vramfit_core::report::Report;
use vramfit_core::{Error, ErrorKind, Result};

use crate::child::{Ended, signal_name};
use crate::files::write;
use crate::output::Output;
use crate::status::Status;
use crate::traces::{add_exit, decide, read_own, traces};

/// A program that ran, and where its trace should be.
pub(super) struct Run<'a> {
    pub(super) program: &'a Path,
    pub(super) ended: Ended,
    /// Why JAX refused the settings that the program had, where it did.
    pub(super) refused: Option<Error>,
    /// Whether the program's Python was asked beforehand what it has installed.
    pub(super) asked: bool,
    pub(super) trace: &'a Path,
    /// Why the trace could not be written to its end.
    pub(super) trace_failure: Option<&'a str>,
}

/// Where the answer goes besides the terminal.
pub(super) struct Files<'a> {
    pub(super) json: Option<&'a Path>,
    /// Whether the JSON goes to standard output, and nothing else is to be said.
    pub(super) json_to_stdout: bool,
    /// The report as a page.
    pub(super) report: Option<&'a Path>,
    /// The trace, when it is to be kept.
    pub(super) trace: Option<&'a Path>,
    pub(super) force: bool,
}

/// Signals by which native code ends itself.
const CRASHES: [i32; 5] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV];

/// Tells the answer.
///
/// # Errors
/// `gpu-not-used` when there is none, `compiler-failed` when the program crashed before running
/// out of memory, `invalid-file` when the trace cannot be read.
pub(super) fn tell(run: &Run<'_>, files: &Files<'_>, output: &mut Output) -> Result<Status> {
    let mut answers = Vec::new();
    for path in traces(run.trace) {
        let mut answer = read_own(&path, output)?;
        answer.program_exit = Some(run.ended.as_exit());
        if answer.used_gpu() {
            answers.push(answer);
        }
    }
    // What was refused before the trace ended is known; that all was met is not.
    let refused = answers.iter().any(RunSummary::is_refused);
    if let Some(cause) = run.trace_failure.filter(|_| !refused) {
        return Err(cut_trace(run.trace, cause));
    }
    let Some(answer) = decide(answers) else {
        return Err(never_used(run));
    };
    let report = Report::from_dryrun(&answer);
    if files.json_to_stdout {
        output.json_after_program(&report.to_json())?;
    } else {
        output.say(&report.to_text());
    }
    if let Some(path) = files.json {
        write(path, &report.to_json(), files.force)?;
        output.say(&format!("answer written to {}", path.display()));
    }
    if let Some(path) = files.report {
        write(path, &report.to_html(), files.force)?;
        output.say(&format!("report written to {}", path.display()));
    }
    if let Some(path) = files.trace {
        for trace in traces(path) {
            // The answer is told already; that the trace does not say how the run ended takes nothing from it.
            if let Err(error) = add_exit(&trace, run.ended.as_exit()) {
                output.say(&format!("warning: {error}"));
            }
        }
        output.say(&format!("trace written to {}", path.display()));
    }
    let status = Status::from_answer(answer.fits());
    match run.ended {
        // A program that died of the virtual GPU's limit ends with 1 as a rule; another end is told.
        ended if status == Status::No && !matches!(ended, Ended::Code(0 | 1)) => {
            output.say(&format!("the program {}", ended.words()));
        }
        Ended::Signal(signal) if status == Status::Unknown && CRASHES.contains(&signal) => {
            let programs = answer.programs.iter();
            let count = programs.map(|program| program.compilations).sum::<u64>();
            return Err(crashed(signal, Some(count)));
        }
        ended if status == Status::Unknown && ended != Ended::Code(0) => {
            output.say(&format!(
                "the program {}, not for want of GPU memory",
                ended.words()
            ));
        }
        _ => {}
    }
    Ok(status)
}

/// Says why there is nothing to tell, as well as it can be known.
fn never_used(run: &Run<'_>) -> Error {
    if let Some(refused) = &run.refused {
        return refused
            .clone()
            .with_kind(ErrorKind::GpuNotUsed)
            .context("JAX refused its settings");
    }
    match run.ended {
        Ended::Signal(signal) if CRASHES.contains(&signal) => crashed(signal, None),
        Ended::Code(0) => {
            let error = Error::new(ErrorKind::GpuNotUsed, "the program never used the GPU");
            if run.asked {
                error.hint(
                    "it may choose another device itself (`jax_platforms`, `jax_default_device`), \
                     or end before its first JAX operation",
                )
            } else {
                let name = run.program.file_name().unwrap_or(run.program.as_os_str());
                error.hint(format!(
                    "`{}` must pass `PYTHONPATH` and `JAX_PLATFORMS` on to the Python it starts",
                    name.to_string_lossy()
                ))
            }
        }
        ended => Error::new(
            ErrorKind::GpuNotUsed,
            format!("the program {} before it used the GPU", ended.words()),
        )
        .hint(last_words()),
    }
}

/// Of a run whose trace ends before the run did.
fn cut_trace(trace: &Path, cause: &str) -> Error {
    let message = "the trace could not be written to its end, so nothing can be told of the run";
    let folder = trace.parent().unwrap_or(trace).display();
    Error::new(ErrorKind::Io, message).cause(cause).hint(format!(
        "make room in `{folder}`, or name another place: `--trace FILE`, or `TMPDIR=DIR` without one"
    ))
}

fn crashed(signal: i32, compiled: Option<u64>) -> Error {
    let name = signal_name(signal);
    let when = match compiled {
        Some(count) => format!("after compiling {count} programs"),
        None => "before it used the GPU".to_owned(),
    };
    Error::new(
        ErrorKind::CompilerFailed,
        format!("the program was killed by {name} {when}"),
    )
    .hint(last_words())
}

/// Points at what the program said, and at the commonest reason why XLA ends a process.
fn last_words() -> &'static str {
    if std::env::var_os("XLA_FLAGS").is_some_and(|flags| !flags.is_empty()) {
        "what it said last is above; XLA also ends so when it does not know a flag in `XLA_FLAGS`"
    } else {
        "what it said last is above"
    }
}
