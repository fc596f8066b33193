//! What an entry came to on a GPU, and what is said of it.

use std::path::PathBuf;

use vramfit_analysis::analysis::Condition;
use vramfit_analysis::check::{
    Entry, Figures, Lock, LockLine, Outcome, Row, WholeRun, determine_outcome,
};
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_runner::dryrun::MeasuredRun;

/// What an entry came to on a GPU.
pub(super) struct RowMeasurement<'a> {
    pub(super) entry: &'a Entry,
    /// The GPUs, as `NAME` or `NAMExN`.
    pub(super) gpu: String,
    pub(super) gpus: &'a GpuSelection,
    pub(super) result: Result<Measured>,
    pub(super) trace: PathBuf,
}

pub(super) struct Measured {
    pub(super) line: LockLine,
    pub(super) run: MeasuredRun,
    /// What a second run of the same program came to, where it was made.
    pub(super) again: Option<Figures>,
    /// The run to its end, where that was measured.
    pub(super) whole: Option<Result<MeasuredRun>>,
}

impl RowMeasurement<'_> {
    /// Returns what was measured, if it could be.
    pub(super) fn measured(&self) -> Option<&Measured> {
        self.result.as_ref().ok()
    }

    /// Returns the release of JAX that the program used; empty where it could not be measured.
    pub(super) fn jax(&self) -> &str {
        self.measured().map_or("", |measured| &measured.line.key.jax)
    }

    /// Judges the row.
    pub(super) fn to_report_row(&self, lock: &Lock, no_lock: bool) -> Row {
        let found = lock.find(&self.entry.name, &self.gpu, self.jax());
        let (outcome, limit_bytes) = match &self.result {
            Err(error) => (failed(error), 0),
            Ok(measured) => {
                let accepted = found.and_then(|line| line.whole_run);
                let outcome = self.whole_run_outcome(measured, accepted).unwrap_or_else(|| {
                    self.determine_outcome(measured, found.map(|line| &line.figures))
                });
                let outcome = match outcome {
                    Outcome::NotAccepted if no_lock => Outcome::WithinLimits,
                    outcome => outcome,
                };
                (outcome, measured.run.limit_bytes)
            }
        };
        Row {
            entry: self.entry.name.clone(),
            gpu: self.gpu.clone(),
            outcome,
            measured: self.measured().map(|measured| measured.line.clone()),
            limit_bytes,
            limits: self.entry.limits,
            accepted: found.cloned(),
            base: None,
            growth: None,
            history: Vec::new(),
            conditions: self
                .measured()
                .map_or_else(Vec::new, |measured| measured.run.conditions.clone()),
        }
    }

    /// Judges the run to its end, measured now or when it was accepted: `None` where it keeps its limits, or
    /// nothing is known of it.
    fn whole_run_outcome(
        &self,
        measured: &Measured,
        accepted: Option<WholeRun>,
    ) -> Option<Outcome> {
        let limit_bytes = measured.run.limit_bytes;
        let (peak_bytes, fits) = match &measured.whole {
            Some(Ok(run)) => (run.peak_bytes, run.may_fit()),
            Some(Err(_)) => return None,
            None => {
                let peak = accepted?.peak_bytes()?;
                // A run that is not ended early any more is judged as it is.
                if !Condition::is_stopped(&measured.run.conditions) {
                    return None;
                }
                (peak, peak <= limit_bytes)
            }
        };
        let figures = Figures { peak_bytes, ..Figures::default() };
        let outcome = determine_outcome(&figures, fits, limit_bytes, None, &self.entry.limits);
        let when = match measured.whole {
            Some(_) => "the whole run",
            None => "the whole run, as measured by the last `--update`",
        };
        match outcome {
            Outcome::OverLimit { reason } => {
                Some(Outcome::OverLimit { reason: format!("{when}: {reason}") })
            }
            Outcome::DoesNotFit => Some(Outcome::OverLimit {
                reason: format!(
                    "{when}: does not fit: its peak is {}, the pool has {}",
                    Bytes(peak_bytes),
                    Bytes(limit_bytes)
                ),
            }),
            _ => None,
        }
    }

    /// Judges what was measured. Two runs that differ by more than the tolerance cannot be compared.
    pub(super) fn determine_outcome(
        &self,
        measured: &Measured,
        accepted: Option<&Figures>,
    ) -> Outcome {
        let outcome_for = |figures| {
            let run = &measured.run;
            determine_outcome(figures, run.may_fit(), run.limit_bytes, accepted, &self.entry.limits)
        };
        let first = outcome_for(&measured.line.figures);
        let Some(again) = &measured.again else {
            return first;
        };
        let is_kept = |outcome: &Outcome| outcome.passes() == Some(true);
        if again == &measured.line.figures || is_kept(&first) && is_kept(&outcome_for(again)) {
            return first;
        }
        let pairs = measured.line.figures.named().into_iter().zip(again.named());
        let tolerance = self.entry.limits.tolerance;
        let differing: Vec<String> = pairs
            .filter(|((_, a), (_, b))| a.abs_diff(*b) > tolerance.of(*a))
            .map(|((name, a), (_, b))| {
                format!("{name} {} ({a} bytes), then {} ({b} bytes)", Bytes(a), Bytes(b))
            })
            .collect();
        match differing.is_empty() {
            true => first,
            false => Outcome::NotReproducible { reason: differing.join("; ") },
        }
    }
}

/// Returns the outcome of what could not be measured.
fn failed(error: &Error) -> Outcome {
    Outcome::Failed { reason: describe_failure(error) }
}

/// Describes an error of a dry run in one line: with the exception of the program, or what it printed last
/// before it ended by itself.
pub(super) fn describe_failure(error: &Error) -> String {
    let message = error.message();
    let Some(output) = error.cause_text() else {
        return message.to_owned();
    };
    let last = || output.lines().last().filter(|_| message.contains("exit code"));
    let line = output.lines().rev().find(|line| is_exception(line)).or_else(last);
    let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else {
        return message.to_owned();
    };
    // The message of an exception that nothing caught is known already, without its class.
    match message.split_once(": ") {
        Some((head, tail)) if line.ends_with(tail) => format!("{head}: {line}"),
        _ => format!("{message}: {line}"),
    }
}

/// Returns `true` if a line is the last of a Python traceback.
fn is_exception(line: &str) -> bool {
    let kind = line.split(':').next().unwrap_or_default();
    let is_name = |c: char| c.is_alphanumeric() || "._".contains(c);
    let ends = ["Error", "Exception", "Interrupt", "Exit"];
    kind.chars().all(is_name) && ends.iter().any(|end| kind.ends_with(end))
}

#[cfg(test)]
mod tests {
    use vramfit_analysis::ErrorKind;

    use super::*;

    #[test]
    fn a_failure_names_the_exception_once() {
        let described = |message: &str, output: &str| {
            describe_failure(&Error::new(ErrorKind::ProgramFailed, message).cause(output))
        };
        let output = "Traceback:\n  File x\nvramfit.errors.InvalidArgumentError: no `a`\nhint: b";
        let expected = "it failed: vramfit.errors.InvalidArgumentError: no `a`";
        assert_eq!(described("it failed", output), expected);
        assert_eq!(described("it failed: no `a`", output), expected);
        assert_eq!(
            described("it ended with exit code 2", "a\nlast"),
            "it ended with exit code 2: last"
        );
        assert_eq!(
            described("it never used the GPU", "Error in line 3\nlast"),
            "it never used the GPU"
        );
    }
}
