//! Edits that a run suggests, each measured by a dry run with it.

use std::collections::BTreeSet;
use std::time::Duration;

use vramfit_analysis::analysis::{Condition, MeasuredEdit, RunSummary};
use vramfit_analysis::planning::{EditOutcome, Plan, PlanSource, ProgramEdit, SuggestedEdit};
use vramfit_base::{ErrorKind, Result};
use vramfit_model::run_config::{RunConfig, Sharing, StepLimit};

use super::measure::{MeasuredRun, PROGRAM_FAILED, measure};
use super::spec::DryrunSpec;
use crate::context::Context;
use crate::files::cannot_write;
use crate::interruption::{self, Interruption};
use crate::messages::Messages;
use crate::parallel::map_dry_runs;
use crate::scratch::TempDirectory;

/// Which edits are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemedyLevel {
    /// None.
    #[default]
    Off,
    /// The two that are about most memory, where the program does not fit.
    Quick,
    /// All, also where it fits.
    Full,
}

/// How many edits are measured by `quick`.
const QUICK_EDITS: usize = 2;
/// An edit that is about less than one in this many of the bytes that are needed is not measured.
const MIN_FRACTION: u64 = 20;
/// A dry run with an edit may take this many times as long as the first, which may have been cut short by its failure …
const TIME_FACTOR: u32 = 5;
/// … and no less than this.
const MIN_TIME: Duration = Duration::from_secs(60);
/// On two cores more would only wait for each other.
const JOBS: usize = 2;

impl RemedyLevel {
    /// Returns the edits to measure.
    fn select(self, summary: &RunSummary) -> Vec<SuggestedEdit> {
        let is_wanted = match self {
            RemedyLevel::Off => false,
            RemedyLevel::Quick => summary.fits() == Some(false),
            RemedyLevel::Full => summary.fits().is_some(),
        };
        if !is_wanted {
            return Vec::new();
        }
        let min_bytes = (summary.needed_bytes() / MIN_FRACTION).max(1);
        let mut edits = SuggestedEdit::find(summary);
        edits.retain(|edit| edit.bytes >= min_bytes && !changes_output(&edit.edit));
        if self == RemedyLevel::Quick {
            edits.truncate(QUICK_EDITS);
        }
        edits
    }
}

/// Measures edits that a run suggests, and those that help together where none of them is enough.
///
/// Returns what is known when a signal comes.
pub(super) fn measure_edits(
    spec: &DryrunSpec,
    summary: &RunSummary,
    elapsed: Duration,
    context: &Context,
    messages: &dyn Messages,
) -> Vec<MeasuredEdit> {
    let edits = spec.remedies.select(summary);
    // What other programs hold at the time is not that of this run.
    let shares = matches!(spec.run.sharing, Sharing::Named(_));
    if edits.is_empty() || shares {
        return Vec::new();
    }
    // One program in front of the user ends by itself when a signal comes; those that nobody sees must end with us.
    let is_alone = spec.is_alone(context);
    let Ok(_interruption) = is_alone.then(Interruption::watch).transpose() else {
        return Vec::new();
    };
    let has_ended = summary.uncaught_error.is_none() && !summary.is_refused();
    let steps = match has_ended {
        true => spec.run.steps,
        // Of a run that failed, it is not known how many steps it has left.
        false => spec.run.steps.or(Some(StepLimit::Steady)),
    };
    let trial = Trial { spec, elapsed, steps, context, messages };
    messages.info(&match edits.len() {
        1 => "measuring a change of the program by a dry run with it".to_owned(),
        count => format!("measuring {count} changes of the program by dry runs with them"),
    });
    let measured = map_dry_runs(edits, JOBS, messages, |edit| {
        let measured = trial.measure(&[&edit])?;
        Some((edit, measured))
    });
    let needed_bytes = summary.needed_bytes();
    let some_help = measured.iter().any(|(_, measured)| measured.helps(needed_bytes));
    let one_fits = measured.iter().any(|(_, measured)| measured.fits == Some(true));
    let together = (some_help && !one_fits).then(|| {
        // One that fails alone may need another.
        let is_useful =
            |measured: &MeasuredEdit| measured.helps(needed_bytes) || measured.peak_bytes.is_none();
        let useful = measured.iter().filter(|(_, measured)| is_useful(measured));
        let useful: Vec<&SuggestedEdit> = useful.map(|(edit, _)| edit).collect();
        (useful.len() > 1).then(|| trial.measure(&useful)).flatten()
    });
    let together = together.flatten().filter(|measured| measured.helps(needed_bytes));
    let works_together = |alone: &MeasuredEdit| {
        let together = together.as_ref().map_or(&[][..], |together| &together.kinds);
        alone.kinds.iter().all(|kind| together.contains(kind))
    };
    let mut measured: Vec<MeasuredEdit> = measured
        .into_iter()
        .map(|(_, alone)| match alone.peak_bytes.is_none() && works_together(&alone) {
            true => MeasuredEdit { failure: "fails alone".to_owned(), ..alone },
            false => alone,
        })
        .collect();
    measured.sort_by_key(|edit| edit.peak_bytes.unwrap_or(u64::MAX));
    measured.extend(together);
    measured
}

/// Returns `true` if the program would write other results than without the edit: it may write them to its files.
fn changes_output(edit: &ProgramEdit) -> bool {
    matches!(edit, ProgramEdit::Omit(_))
}

/// Says that changes that were to be measured could not be made.
fn describe_unmade(edits: &[&SuggestedEdit]) -> String {
    let whole: Vec<String> = edits.iter().map(|suggested| suggested.edit.describe()).collect();
    let is_attention =
        |suggested: &&SuggestedEdit| matches!(suggested.edit, ProgramEdit::CudnnAttention);
    let reason = match edits.iter().all(is_attention) {
        true => {
            "each attention of the program is of 32 bits, or has an `implementation` of its own"
        }
        false => "the program gives `jax.jit` no such function with such arguments, or several",
    };
    format!("not measured: {}: {reason}", whole.join(", "))
}

/// Says why a program could not be measured with an edit.
fn describe_failure(message: &str) -> String {
    let message = message.strip_prefix(PROGRAM_FAILED).unwrap_or(message);
    if message.contains("has been deleted") {
        return "not possible: the program uses what is donated after the call".to_owned();
    }
    if message.contains("donate the same buffer twice") {
        return "not possible: the program passes one array twice in the call".to_owned();
    }
    match message.to_lowercase().contains("cudnn") {
        true => format!(
            "not measured: {message} (with JAX's CUDA 13, `pip install nvidia-cudnn-cu13` beside JAX lets the dry run compile it)"
        ),
        false => format!("not measured: {message}"),
    }
}

/// Dry runs of the program with edits.
struct Trial<'a> {
    /// The dry run of the program as it is.
    spec: &'a DryrunSpec,
    /// How long that took.
    elapsed: Duration,
    /// After which training steps a dry run with an edit ends.
    steps: Option<StepLimit>,
    context: &'a Context,
    messages: &'a dyn Messages,
}

impl Trial<'_> {
    /// Measures some edits together; `None` when a signal came, and where they could not be made.
    fn measure(&self, edits: &[&SuggestedEdit]) -> Option<MeasuredEdit> {
        if interruption::received().is_some() {
            return None;
        }
        let result = match self.run(edits) {
            Ok(Some(run)) => Ok(run),
            Ok(None) => {
                self.messages.info(&describe_unmade(edits));
                return None;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return None,
            Err(error) => Err(describe_failure(error.message())),
        };
        let result = result.map(|run| {
            let steps = run.summary.step().map(|step| step.calls);
            EditOutcome {
                peak_bytes: run.peak_bytes,
                fits: run.fits,
                steps: steps.filter(|_| Condition::is_stopped(&run.conditions)),
            }
        });
        Some(SuggestedEdit::measured(edits, result))
    }

    /// Returns `None` where an edit reached no function, or several that have the same name.
    fn run(&self, edits: &[&SuggestedEdit]) -> Result<Option<MeasuredRun>> {
        let folder = TempDirectory::create()?;
        let file = folder.path().join("plan.toml");
        let own = self.spec.run.plan.as_deref().map(Plan::read).transpose()?;
        let mut plan = own.map_or_else(Plan::default, |(plan, _)| plan);
        plan.edits.extend(edits.iter().map(|suggested| suggested.edit.clone()));
        std::fs::write(&file, plan.to_toml(&PlanSource::default())?)
            .map_err(|error| cannot_write(&file, error))?;
        let applied = folder.path().join("plan.toml.applied");
        std::fs::write(&applied, "").map_err(|error| cannot_write(&applied, error))?;
        let run = &self.spec.run;
        let spec = DryrunSpec {
            run: RunConfig {
                plan: Some(file),
                steps: self.steps,
                sharing: Sharing::Private,
                autotune_range: false,
                ..run.clone()
            },
            time_limit: Some(MIN_TIME.max(self.elapsed * TIME_FACTOR)),
            trace: None,
            remedies: RemedyLevel::Off,
            ..self.spec.clone()
        };
        let measured = measure(&spec, self.context, self.messages)?;
        let applied = std::fs::read_to_string(&applied).unwrap_or_default();
        let functions = |edit: &SuggestedEdit| {
            let kind = format!("{} ", edit.edit.kind());
            // Each process writes its own, and those of several hosts are the same.
            let functions = applied.lines().filter(|line| line.starts_with(&kind));
            functions.collect::<BTreeSet<&str>>().len()
        };
        Ok(edits.iter().all(|edit| functions(edit) == 1).then_some(measured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_donated_is_said_to_be_impossible() {
        for (message, expected) in [
            ("RuntimeError: Array has been deleted with shape=float32[2].", "uses what is donated"),
            (
                "INVALID_ARGUMENT: Attempt to donate the same buffer twice in Execute()",
                "passes one array twice",
            ),
        ] {
            let text = describe_failure(message);
            assert!(text.starts_with(&format!("not possible: the program {expected}")), "{text}");
        }
        assert_eq!(describe_failure("ValueError: x"), "not measured: ValueError: x");
    }
}
