//! The outcome of a run, as messages and an exit code.

use std::path::Path;

use serde_json::json;
use vramfit_core::report::Report;
use vramfit_core::{Error, ErrorKind, Result};

use super::request::{NonFiniteCause, Outcome, OutcomeKind};
use crate::child;
use crate::files::write;
use crate::metrics_logs;
use crate::output::Output;
use crate::status::Status;

/// A run that has ended.
pub(super) struct FinishedRun<'a> {
    /// Its configuration file.
    pub(super) file: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) json: bool,
    /// Whether this process reports; one of several does.
    pub(super) is_primary: bool,
    /// How its process ended.
    pub(super) ended: child::ExitReason,
    /// What it wrote, if it could.
    pub(super) outcome: Option<Outcome>,
}

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: u8 = 15;

/// Reports the outcome of a run.
///
/// # Errors
/// Why the run could not start or resume.
pub(super) fn report(run: FinishedRun<'_>, output: &mut Output) -> Result<Status> {
    let file = run.file.display();
    let Some(outcome) = run.outcome else {
        return report_crash(run.ended, &file.to_string(), output);
    };
    let error = outcome.error.map(Error::from);
    let ran = outcome.kind != OutcomeKind::Rejected;
    if ran && run.is_primary {
        write_report(run.directory, output)?;
    }
    if ran && run.is_primary && run.json {
        output.json(&json!({
            "schema": 1,
            "outcome": outcome.kind,
            "directory": run.directory,
            "result": outcome.result,
        }))?;
    }
    if let Some(cause) = &outcome.save_error {
        output.error(&save_error(outcome.step, cause, run.directory));
    }
    let is_saved = outcome.save_error.is_none();
    match (outcome.kind, error) {
        (OutcomeKind::Finished | OutcomeKind::Early, _) if is_saved => Ok(Status::Yes),
        (OutcomeKind::Finished | OutcomeKind::Early, _) => Ok(Status::No),
        (OutcomeKind::Signal, _) => {
            if run.is_primary && is_saved {
                output.info(&format!("stopped; run `vramfit train {file}` to resume"));
            }
            Ok(Status::Child(128 + outcome.signal.unwrap_or(SIGTERM)))
        }
        (OutcomeKind::Nan, _) => {
            output.error(&nan_error(outcome.nan.as_ref()));
            Ok(Status::No)
        }
        (OutcomeKind::OutOfMemory, error) => {
            let error = error
                .unwrap_or_else(|| Error::new(ErrorKind::InsufficientMemory, "out of memory"))
                .with_kind(ErrorKind::InsufficientMemory);
            output.error(&error.hint(format!(
                "`vramfit train {file} --dry-run GPU` finds the largest batch size that fits; `vramfit top` \
                 shows which other processes use GPU memory"
            )));
            Ok(Status::No)
        }
        (OutcomeKind::Rejected, error) => Err(error.unwrap_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "the run could not start, for an unknown reason",
            )
        })),
    }
}

/// Returns the error of a run whose loss was not finite.
fn nan_error(cause: Option<&NonFiniteCause>) -> Error {
    let message = "the loss is NaN or infinite, and the run was stopped";
    let error = match cause {
        Some(cause) => Error::new(ErrorKind::VerificationFailed, message).cause(&cause.text),
        None => Error::new(ErrorKind::VerificationFailed, message),
    };
    match cause.and_then(|cause| cause.in_data) {
        Some(true) => error.hint("correct or remove these rows; others may have such values, too"),
        _ => error.hint(
            "try a lower `optimizer.learning_rate`, `optimizer.clip`, or rescaling the data, with another \
             `training.directory`",
        ),
    }
}

/// Returns the error of a run whose final state could not be saved.
fn save_error(step: u64, cause: &str, directory: &Path) -> Error {
    Error::io(format!("the final state (step {step}) could not be saved"))
    .cause(cause)
    .hint(format!(
        "free space or fix permissions in `{}`, then run the same command again: it resumes from the latest \
         checkpoint",
        directory.display()
    ))
}

/// Writes `report.html` beside the metrics log, replacing an earlier one.
fn write_report(directory: &Path, output: &mut Output) -> Result<()> {
    let Ok(log) = metrics_logs::read(&directory.join("metrics.jsonl")) else {
        // Ended before its first line.
        return Ok(());
    };
    let path = directory.join("report.html");
    write(&path, &Report::from_training(&log).to_html(), true)?;
    output.info(&format!("report written to {}", path.display()));
    Ok(())
}

/// Reports a run that ended without an outcome.
fn report_crash(ended: child::ExitReason, file: &str, output: &mut Output) -> Result<Status> {
    if let child::ExitReason::Signal(SIGINT) = ended {
        output.info(&format!(
            "stopped immediately, without saving; run `vramfit train {file}` to resume from the latest checkpoint"
        ));
        return Ok(Status::Child(ended.shell_code()));
    }
    let mut text = format!("the run {}", ended.describe());
    match ended {
        child::ExitReason::Signal(SIGKILL) => {
            text += ", as the system does when memory runs out";
        }
        child::ExitReason::Code(_) => text += "; see its output above",
        child::ExitReason::Signal(_) => {}
    }
    output.info(&text);
    output.info(&format!(
        "run `vramfit train {file}` to resume from the latest checkpoint"
    ));
    Ok(match ended {
        child::ExitReason::Signal(_) => Status::Child(ended.shell_code()),
        child::ExitReason::Code(_) => Status::No,
    })
}
