//! The outcome of a run, as messages and an exit code.

use std::path::Path;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use vramfit_analysis::report::Report;
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_runner::child;

use super::request::{NonFiniteCause, Outcome, OutcomeKind};
use crate::commands::results::{JsonTarget, write_page};
use crate::metrics_logs;
use crate::output::Output;
use crate::status::Status;

/// A run that has ended.
pub(super) struct FinishedRun<'a> {
    /// The command that was given.
    pub(super) command: String,
    /// The command that resumes it.
    pub(super) resume_command: String,
    /// The command that finds the largest batch size, for some `GPU`.
    pub(super) dry_run_command: String,
    /// The signal that ended it at once, after another one had not.
    pub(super) forced_by: Option<i32>,
    pub(super) directory: &'a Path,
    pub(super) json: JsonTarget,
    /// Whether this process reports; one of several does.
    pub(super) is_primary: bool,
    /// How its process ended.
    pub(super) ended: child::ExitReason,
    /// What it wrote, if it could.
    pub(super) outcome: Option<Outcome>,
}

/// Signals that stop a run.
pub(super) const STOP_SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// Reports the outcome of a run.
///
/// # Errors
/// Why the run could not start or resume.
pub(super) fn report(run: FinishedRun<'_>, output: &mut Output) -> Result<Status> {
    let resume = &run.resume_command;
    let Some(outcome) = run.outcome else {
        return report_crash(&run, output);
    };
    let error = outcome.error.map(Error::from);
    let ran = !matches!(outcome.kind, OutcomeKind::Rejected | OutcomeKind::Failed);
    let mut is_saved = outcome.save_error.is_none();
    if ran && run.is_primary {
        // A report that cannot be written is no reason to be silent about the run.
        if let Err(error) = write_report(run.directory, output) {
            output.error(&error);
            is_saved = false;
        }
    }
    if ran && run.is_primary {
        let result = json!({
            "schema": JSON_SCHEMA,
            "outcome": outcome.kind,
            "directory": run.directory,
            "result": outcome.result,
        });
        run.json.write(&result, output)?;
    }
    if let Some(cause) = &outcome.save_error {
        output.error(&save_error(outcome.step, cause, run.directory, resume));
    }
    match (outcome.kind, error) {
        (OutcomeKind::Finished | OutcomeKind::Early, _) if is_saved => Ok(Status::Yes),
        (OutcomeKind::Finished | OutcomeKind::Early, _) => Ok(Status::No),
        (OutcomeKind::Signal, _) if outcome.save_error.is_some() => Ok(Status::No),
        (OutcomeKind::Signal, _) => {
            if run.is_primary {
                output.info(&format!("stopped; run `{resume}` to resume"));
            }
            let signal = outcome.signal.map_or(SIGTERM, i32::from);
            Ok(Status::Child(child::ExitReason::Signal(signal).shell_code()))
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
                "`{}` finds the largest batch size that fits; `vramfit top` shows which other processes use GPU \
                 memory",
                run.dry_run_command
            )));
            Ok(Status::No)
        }
        (OutcomeKind::Failed, Some(error)) => {
            output.error(&error);
            Ok(Status::No)
        }
        (OutcomeKind::Rejected | OutcomeKind::Failed, error) => Err(error.unwrap_or_else(|| {
            Error::new(ErrorKind::Internal, "the run could not start, for an unknown reason")
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
fn save_error(step: u64, cause: &str, directory: &Path, resume: &str) -> Error {
    Error::io(format!("the final state (step {step}) could not be saved"))
    .cause(cause)
    .hint(format!(
        "free space or fix permissions in `{}`, then run `{resume}` to resume from the latest checkpoint",
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
    write_page(&Report::from_training(&log), Some(&path), true, output)
}

/// Reports a run that ended without an outcome.
fn report_crash(run: &FinishedRun<'_>, output: &mut Output) -> Result<Status> {
    let resume = &run.resume_command;
    if let Some(signal) = run.forced_by {
        output.info(&format!(
            "stopped immediately, without saving; run `{resume}` to resume from the latest checkpoint"
        ));
        return Ok(Status::Child(child::ExitReason::Signal(signal).shell_code()));
    }
    match run.ended {
        // From the first step on it saves its state, whatever these do by default.
        child::ExitReason::Signal(signal) if STOP_SIGNALS.contains(&signal) => {
            output.info(&format!(
                "stopped before the first step; run `{}` to begin again",
                run.command
            ));
            return Ok(Status::Child(run.ended.shell_code()));
        }
        _ => {}
    }
    let mut text = format!("the run {}", run.ended.describe());
    match run.ended {
        child::ExitReason::Signal(SIGKILL) => {
            text += ", as the system does when memory runs out";
        }
        child::ExitReason::Code(_) => text += "; see its output above",
        child::ExitReason::Signal(_) => {}
    }
    output.info(&text);
    let checkpoints = std::fs::read_dir(run.directory.join("checkpoints"));
    if checkpoints.is_ok_and(|mut found| found.next().is_some()) {
        output.info(&format!("run `{resume}` to resume from the latest checkpoint"));
    }
    Ok(match run.ended {
        child::ExitReason::Signal(_) => Status::Child(run.ended.shell_code()),
        child::ExitReason::Code(_) => Status::No,
    })
}
