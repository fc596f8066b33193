//! After a run: what became of it, in words and in an exit code.

use std::path::Path;

use serde::Serialize;
use serde_json::Value as Json;
use vramfit_core::report::Report;
use vramfit_core::{Error, ErrorKind, Result};

use super::request::{Ended, NanCause, Outcome};
use crate::child;
use crate::files::write;
use crate::journals;
use crate::output::Output;
use crate::status::Status;

/// A run that is over.
pub(super) struct Run<'a> {
    /// The file that described it.
    pub(super) file: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) json: bool,
    /// Whether this process tells of the run; one of several does.
    pub(super) speaks: bool,
    /// How its process ended.
    pub(super) ended: child::ExitReason,
    /// What it handed back, if it could.
    pub(super) outcome: Option<Outcome>,
}

#[derive(Serialize)]
struct TrainOutput<'a> {
    schema: u32,
    ended: &'a str,
    directory: &'a Path,
    result: &'a Json,
}

/// The signal of Ctrl-C.
const INTERRUPT: i32 = 2;
/// The signal by which the system takes memory back.
const KILL: i32 = 9;
/// What ends a run that does not say by which signal.
const SIGTERM: u8 = 15;

/// Tells what became of a run.
///
/// # Errors
/// What the run could not begin with, or not go on with.
pub(super) fn tell(run: Run<'_>, output: &mut Output) -> Result<Status> {
    let file = run.file.display();
    let Some(outcome) = run.outcome else {
        return silent(run.ended, &file.to_string(), output);
    };
    let error = outcome.error.map(Error::from);
    let ran = outcome.ended != Ended::Refused;
    if ran && run.speaks {
        page(run.directory, output)?;
    }
    if ran && run.speaks && run.json {
        output.json(&TrainOutput {
            schema: 1,
            ended: word(outcome.ended),
            directory: run.directory,
            result: &outcome.result,
        })?;
    }
    if let Some(cause) = &outcome.unsaved {
        output.error(&unsaved_error(outcome.step, cause, run.directory));
    }
    let is_saved = outcome.unsaved.is_none();
    match (outcome.ended, error) {
        (Ended::Finished | Ended::Early, _) if is_saved => Ok(Status::Yes),
        (Ended::Finished | Ended::Early, _) => Ok(Status::No),
        (Ended::Signal, _) => {
            if run.speaks && is_saved {
                output.info(&format!(
                    "stopped; `vramfit train {file}` goes on from here"
                ));
            }
            Ok(Status::Child(128 + outcome.signal.unwrap_or(SIGTERM)))
        }
        (Ended::Nan, _) => {
            output.error(&nan_error(outcome.nan.as_ref()));
            Ok(Status::No)
        }
        (Ended::OutOfMemory, error) => {
            let error = error
                .unwrap_or_else(|| Error::new(ErrorKind::InsufficientMemory, "out of memory"))
                .with_kind(ErrorKind::InsufficientMemory);
            output.error(&error.hint(format!(
                "`vramfit train {file} --dry-run GPU` finds the largest batch that fits, before any \
                 time is spent; `vramfit top` shows who else holds memory"
            )));
            Ok(Status::No)
        }
        (Ended::Refused, error) => Err(error.unwrap_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "the run could not begin, and did not say why",
            )
        })),
    }
}

/// Returns the error of a run whose loss was not finite, with a hint that fits the cause.
fn nan_error(cause: Option<&NanCause>) -> Error {
    let message = "the loss is NaN or infinite, and the run was stopped";
    let error = match cause {
        Some(cause) => Error::new(ErrorKind::VerificationFailed, message).cause(&cause.text),
        None => Error::new(ErrorKind::VerificationFailed, message),
    };
    match cause.and_then(|cause| cause.in_data) {
        Some(true) => error.hint("correct or remove these rows; other rows may have such values, too"),
        _ => error.hint(
            "try a lower `optimizer.learning_rate`, `optimizer.clip`, or another scale of the data, with \
             another `training.directory`",
        ),
    }
}

/// Returns the error of a run whose final state is nowhere.
fn unsaved_error(step: u64, cause: &str, directory: &Path) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the final state, after step {step}, could not be saved"),
    )
    .cause(cause)
    .hint(format!(
        "free space or restore access in `{}`, then run the same command again: it resumes from the last \
         checkpoint that was written",
        directory.display()
    ))
}

/// Writes the page of the run beside its journal, anew each time.
fn page(directory: &Path, output: &mut Output) -> Result<()> {
    let Ok(journal) = journals::read(&directory.join("metrics.jsonl")) else {
        // Ended before its first line; there is nothing to show.
        return Ok(());
    };
    let path = directory.join("report.html");
    write(&path, &Report::from_training(&journal).to_html(), true)?;
    output.info(&format!("report written to {}", path.display()));
    Ok(())
}

/// Says what there is to say of a run that handed nothing back.
fn silent(ended: child::ExitReason, file: &str, output: &mut Output) -> Result<Status> {
    if let child::ExitReason::Signal(INTERRUPT) = ended {
        output.info(&format!(
            "stopped at once, without saving; `vramfit train {file}` goes on from the last checkpoint"
        ));
        return Ok(Status::Child(ended.shell_code()));
    }
    let mut text = format!("the run {}", ended.describe());
    match ended {
        child::ExitReason::Signal(KILL) => {
            text += ", as the system does when memory runs out; the last checkpoint is whole";
        }
        child::ExitReason::Code(_) => text += "; what it said last is above",
        child::ExitReason::Signal(_) => {}
    }
    output.info(&text);
    output.info(&format!(
        "`vramfit train {file}` goes on from the last checkpoint"
    ));
    Ok(match ended {
        child::ExitReason::Signal(_) => Status::Child(ended.shell_code()),
        child::ExitReason::Code(_) => Status::No,
    })
}

fn word(ended: Ended) -> &'static str {
    match ended {
        Ended::Finished => "finished",
        Ended::Early => "early",
        Ended::Nan => "nan",
        Ended::Signal => "signal",
        Ended::OutOfMemory => "out-of-memory",
        Ended::Refused => "refused",
    }
}
