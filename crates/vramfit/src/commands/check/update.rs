//! `vramfit check --update`: accepts what was measured, and says what that is.

use std::path::Path;

use vramfit_analysis::check::{LOCK_FILE, Lock, LockLine, Outcome, WholeRun, combine_answers};
use vramfit_analysis::report::{assumed_clause, describe_phases, excluded_clauses};
use vramfit_analysis::{Bytes, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::STEADY_CALLS;

use super::config_file::ConfigFile;
use super::row::{Measured, RowMeasurement, describe_failure};
use super::trace_store::TraceStore;
use crate::files::write;
use crate::output::Output;
use crate::status::Status;

/// An update of the lock file.
pub(super) struct Update<'a> {
    pub(super) config: &'a ConfigFile,
    pub(super) path: &'a Path,
    /// Whether lines of other releases of JAX are removed.
    pub(super) prune: bool,
    /// Whether only some entries were measured.
    pub(super) is_partial: bool,
}

impl Update<'_> {
    /// Writes the lock file. What is over a limit, or could not be measured, is not accepted.
    pub(super) fn run(
        &self,
        mut lock: Lock,
        rows: &[RowMeasurement<'_>],
        store: Option<&TraceStore>,
        output: &mut Output,
    ) -> Result<Status> {
        let mut lines = Vec::new();
        let mut answers = Vec::new();
        for row in rows {
            let outcome = row.to_report_row(&Lock::default(), false).outcome;
            let accepted = row.measured().filter(|_| outcome == Outcome::NotAccepted);
            let Some(measured) = accepted else {
                answers.push(outcome.passes());
                lines.push(format!("not accepted: {}", describe(row, &outcome)));
                continue;
            };
            let newest = lock
                .find(&row.entry.name, &row.gpu, row.jax())
                .filter(|line| line.key.jax != row.jax())
                .cloned();
            let before = lock.accept(measured.line.clone()).or(newest);
            let text = accepted_text(&measured.line, before.as_ref());
            lines
                .push(text + &assumed_clause(&measured.run.conditions) + &whole_run_text(measured));
            if let Some(store) = store
                && let Some(line) = lock.find(&row.entry.name, &row.gpu, row.jax())
            {
                store.keep(line, &row.trace);
            }
        }
        let answer = combine_answers(answers.into_iter());
        let removed = lock.remove_unless(|line| self.is_kept(line, rows));
        lines.extend(removed.iter().map(|line| {
            let key = &line.key;
            format!("removed: {} on {} with JAX {}", key.entry, key.gpu, key.jax)
        }));
        let others = lock.lines().filter(|line| !is_measured(line, rows)).count();
        if others > 0 && !self.is_partial && answer == Some(true) {
            let text = match others {
                1 => "1 line is of another release of JAX".to_owned(),
                others => format!("{others} lines are of other releases of JAX"),
            };
            lines.push(format!("kept: {text}; `--prune` removes what was not measured"));
        }
        write(self.path, &lock.to_text(), true)?;
        output.text(&format!("{}\n", lines.join("\n")))?;
        Ok(Status::from_answer(answer))
    }

    /// Returns `true` if a line stays: its entry exists on that GPU, and is of a release that was measured or
    /// need not be.
    fn is_kept(&self, line: &LockLine, rows: &[RowMeasurement<'_>]) -> bool {
        let entries = &self.config.config.entries;
        let exists = entries.iter().any(|entry| {
            let mut gpus = entry.gpus.iter().map(GpuSelection::label);
            entry.name == line.key.entry && gpus.any(|gpu| gpu == line.key.gpu)
        });
        let mut of_this = rows.iter().filter(|row| is_of(line, row));
        let is_replaced = of_this.any(|row| row.result.is_ok() && row.jax() != line.key.jax);
        exists && !(self.prune && is_replaced)
    }
}

fn is_of(line: &LockLine, row: &RowMeasurement<'_>) -> bool {
    row.entry.name == line.key.entry && row.gpu == line.key.gpu
}

fn is_measured(line: &LockLine, rows: &[RowMeasurement<'_>]) -> bool {
    rows.iter().any(|row| is_of(line, row) && row.jax() == line.key.jax)
}

fn accepted_text(line: &LockLine, before: Option<&LockLine>) -> String {
    let name = format!("{} on {}", line.key.entry, line.key.gpu);
    let peak = line.figures.peak_bytes;
    let Some(before) = before else {
        return format!("accepted: {name}: peak {} (new)", Bytes(peak));
    };
    let jax = match before.key.jax == line.key.jax {
        true => String::new(),
        false => format!(", JAX {} -> {}", before.key.jax, line.key.jax),
    };
    if before.figures == line.figures {
        return match jax.is_empty() {
            true => format!("unchanged: {name}: peak {}", Bytes(peak)),
            false => format!("accepted: {name}: peak {}, the same as before{jax}", Bytes(peak)),
        };
    }
    let pairs = line.figures.named().into_iter().zip(before.figures.named());
    let changes: Vec<String> = pairs
        .filter(|((_, now), (_, then))| now != then)
        .map(|((name, now), (_, then))| {
            let sign = if now > then { "+" } else { "-" };
            format!(
                "{name} {} (was {}, {sign}{})",
                Bytes(now),
                Bytes(then),
                Bytes(now.abs_diff(then))
            )
        })
        .collect();
    format!("accepted: {name}: {}{jax}", changes.join("; "))
}

/// Says what the whole run came to, or why that is not known; empty where the figures are of the whole run.
fn whole_run_text(measured: &Measured) -> String {
    let conditions = &measured.run.conditions;
    let unknown = |why: &str| format!("{}: {why}", excluded_clauses(conditions, "each dry run"));
    match measured.line.whole_run {
        None => String::new(),
        Some(WholeRun::Peak(bytes)) => {
            let later = later_phase_text(measured);
            format!("; the whole run has a peak of {}{later}", Bytes(bytes))
        }
        Some(WholeRun::Steady(bytes)) => {
            let later = later_phase_text(measured);
            format!(
                "; the run has a peak of {} until {STEADY_CALLS} calls of its training step in a row executed no new program; \
                 all of it takes longer than `--whole-run-timeout`{later}",
                Bytes(bytes)
            )
        }
        Some(WholeRun::TimeLimit(seconds)) => unknown(&format!(
            "the whole run takes longer than the {seconds} s of `--whole-run-timeout`"
        )),
        Some(WholeRun::Failed) => {
            let error = measured.whole.as_ref().and_then(|whole| whole.as_ref().err());
            let why = error.map(describe_failure).unwrap_or_default();
            unknown(&format!("the whole run failed: {why}"))
        }
    }
}

/// Says what raises the peak after the steps that each check measures, and how to measure that, too; empty where nothing
/// does.
fn later_phase_text(measured: &Measured) -> String {
    let whole = measured.whole.as_ref().and_then(|whole| whole.as_ref().ok());
    let phases = whole.map_or(&[][..], |run| run.summary.phases());
    let measured_bytes = measured.run.peak_bytes;
    let mut phases = phases.iter().rev();
    let raising = phases.find(|phase| phase.raises_peak() && phase.peak_bytes > measured_bytes);
    let Some(last) = raising else {
        return String::new();
    };
    let clauses = describe_phases(std::slice::from_ref(last)).join("");
    let steps = last.step_calls + 1;
    format!("; {clauses}: `steps = {steps}` measures it in each check")
}

fn describe(row: &RowMeasurement<'_>, outcome: &Outcome) -> String {
    let name = format!("{} on {}", row.entry.name, row.gpu);
    match outcome {
        Outcome::DoesNotFit => {
            let peak = row.measured().map_or(0, |measured| measured.run.peak_bytes);
            format!("{name}: it does not fit, its peak is {}", Bytes(peak))
        }
        Outcome::OverLimit { reason } | Outcome::Failed { reason } => format!("{name}: {reason}"),
        Outcome::NotReproducible { reason } => {
            format!("{name}: two runs differ: {reason}; a `tolerance` in its entry allows that")
        }
        _ => format!("{name}: `{LOCK_FILE}` is not changed"),
    }
}
