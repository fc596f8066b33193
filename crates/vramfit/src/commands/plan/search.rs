//! The search: what is searched, and what was found.

use vramfit_analysis::analysis::{Condition, Phase};
use vramfit_analysis::planning::{CostKind, LeftAlone, Moves, Row, SuggestedEdit, recommend};
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_runner::dryrun::DryrunSpec;

use super::trial::{StepTime, XlaRemat};
use super::vary::VariedCommand;

/// A plan that is faster by less of the time of a step is not offered: estimates are not that good.
const MIN_GAIN: f64 = 0.05;

pub(super) struct SearchSpec {
    pub(super) trial: DryrunSpec,
    /// Other GPUs that the plans worth choosing are measured on.
    pub(super) others: Vec<GpuSelection>,
    /// The first is that of the baseline.
    pub(super) commands: Vec<VariedCommand>,
    pub(super) budget: Option<Bytes>,
    /// Pinned host memory that may be used.
    pub(super) host_budget: Option<Bytes>,
    /// What may be changed.
    pub(super) moves: Moves,
    /// Whether the fastest plan is wanted also where the program fits as it is.
    pub(super) wants_fastest: bool,
    pub(super) max_trials: usize,
    pub(super) jobs: usize,
}

/// A measured plan.
#[derive(Clone, Debug)]
pub(super) struct FoundRow {
    pub(super) row: Row,
    /// Index of the command.
    pub(super) command: usize,
    /// Share of the operations of differentiated functions that run twice, from 0 to 1.
    pub(super) recomputed_share: f64,
    /// How long a step takes.
    pub(super) time: Option<StepTime>,
    /// What XLA's own rematerialization pass did.
    pub(super) xla_remat: Option<XlaRemat>,
    /// The most bytes at the peak, each with who owns them and where they come from.
    pub(super) largest: Vec<(String, u64)>,
    /// What the pool of each GPU may take; in their order, as far as measured.
    pub(super) limits: Vec<u64>,
    /// Peak on each GPU.
    pub(super) peaks: Vec<u64>,
    /// Peak on the first GPU if library routines take the most they may.
    pub(super) highest_peak_bytes: u64,
    /// What the peak depends on.
    pub(super) conditions: Vec<Condition>,
    /// After which training steps its dry run ended, unless the program did before.
    pub(super) steps: StepLimit,
}

/// An edit of the program, and the peak with it; `None` where the program did not run to its end.
pub(super) struct EditTrial {
    pub(super) edit: SuggestedEdit,
    pub(super) peak_bytes: Option<u64>,
}

/// What a search has found.
pub(super) struct Found {
    /// The rows; the first is the program as it is.
    pub(super) rows: Vec<FoundRow>,
    /// Indices of those worth choosing, by bytes.
    pub(super) front: Vec<usize>,
    pub(super) recommended: usize,
    /// The fastest plan that fits, where the program fits as it is and the plan is faster by the estimate.
    pub(super) faster: Option<usize>,
    /// Why plans could not be measured, each with how many.
    pub(super) failures: Vec<(String, usize)>,
    pub(super) trials: usize,
    pub(super) sites: usize,
    /// Functions that are differentiated and could not be planned.
    pub(super) left_alone: Vec<LeftAlone>,
    /// Whether every proposed plan was measured: there were trials for all, and nobody ended the search.
    pub(super) is_complete: bool,
    /// Whether the user ended it early.
    pub(super) is_interrupted: bool,
    /// What plans were compared by, beside their peak.
    pub(super) cost: CostKind,
    /// Edits of the program, and what they were measured to bring.
    pub(super) edits: Vec<EditTrial>,
    pub(super) jax: String,
    /// What began in the program as it is after the first training steps.
    pub(super) phases: Vec<Phase>,
    /// After which training steps the dry run of the program as it is ended, and of what is said to fit.
    pub(super) steps: StepLimit,
}

impl Found {
    pub(super) fn plain_rows(&self) -> Vec<Row> {
        self.rows.iter().map(|found| found.row.clone()).collect()
    }

    /// Returns the row to recommend, and the fastest that fits where the program fits as it is and that one is faster by
    /// the estimate.
    pub(super) fn choose(&self, spec: &SearchSpec) -> Result<(usize, Option<usize>)> {
        let rows = self.plain_rows();
        let best = recommend(&rows, |row| spec.is_met(row))
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the search has no rows"))?;
        // Of what fits with little scratch memory of libraries, that which leaves most for it.
        let may_fit = (0..rows.len()).filter(|&row| spec.may_be_met(&rows[row]));
        let best = match spec.is_met(&rows[best]) {
            true => best,
            false => may_fit.min_by_key(|&row| rows[row].peak_bytes).unwrap_or(best),
        };
        // A program that fits needs no plan; that another is faster is an estimate, and said as such.
        let fits_as_it_is = spec.commands.len() == 1 && spec.is_met(&rows[0]);
        let is_faster = self.cost != CostKind::RecomputedShare
            && rows[best].cost < rows[0].cost * (1.0 - MIN_GAIN);
        let faster = Some(best).filter(|_| fits_as_it_is && is_faster);
        let recommended = match (fits_as_it_is, faster) {
            (true, Some(faster)) if spec.wants_fastest => faster,
            (true, _) => 0,
            (false, _) => best,
        };
        Ok((recommended, faster))
    }

    /// Returns `true` if a row fits by fewer training steps than were asked for.
    pub(super) fn is_unfinished(&self, row: usize, spec: &SearchSpec) -> bool {
        let found = &self.rows[row];
        Condition::is_stopped(&found.conditions)
            && found.steps != self.steps
            && spec.is_met(&found.row)
    }
}

impl SearchSpec {
    /// Returns `true` if a row meets the budget.
    pub(super) fn is_met(&self, row: &Row) -> bool {
        self.is_within(row, row.fits())
    }

    /// Returns `true` if a row meets the budget where libraries take little enough scratch memory.
    pub(super) fn may_be_met(&self, row: &Row) -> bool {
        self.is_within(row, row.may_fit())
    }

    fn is_within(&self, row: &Row, fits_gpu: bool) -> bool {
        let fits_host = self.host_budget.is_none_or(|budget| row.host_memory_bytes <= budget.0);
        let fits_device = self.budget.map_or(fits_gpu, |budget| row.peak_bytes <= budget.0);
        fits_host && fits_device
    }

    /// Returns what the peak of a row may be.
    pub(super) fn describe_limit(&self, found: &FoundRow) -> String {
        match self.budget {
            Some(budget) => format!("the budget of {budget}"),
            None => format!("{} on {}", Bytes(found.limits[0]), self.trial.run.gpus.name),
        }
    }

    /// Returns why a row does not meet the budget, behind its peak in a sentence.
    pub(super) fn describe_shortage(&self, found: &FoundRow) -> String {
        let limit = self.describe_limit(found);
        let limit_bytes = self.budget.map_or(found.limits[0], |budget| budget.0);
        let host_bytes = found.row.host_memory_bytes;
        match (found.row.peak_bytes.checked_sub(limit_bytes), self.host_budget) {
            (Some(excess), _) if excess > 0 => format!("{} more than {limit}", Bytes(excess)),
            (_, Some(budget)) if host_bytes > budget.0 => format!(
                "within {limit}, but it needs {} of pinned host memory, more than the host budget of {budget}",
                Bytes(host_bytes)
            ),
            _ => format!("within {limit}, but no free block of the pool is large enough"),
        }
    }

    /// Returns `true` if the commands have batches of different sizes, all of them known.
    pub(super) fn has_several_batches(&self) -> bool {
        let batches: Option<Vec<u64>> = self.commands.iter().map(VariedCommand::batch).collect();
        batches.is_some_and(|batches| batches.iter().any(|batch| *batch != batches[0]))
    }

    pub(super) fn trial(&self, command: usize, steps: StepLimit) -> DryrunSpec {
        let trial = self.trial.clone();
        DryrunSpec {
            command: self.commands[command].words.clone(),
            run: RunConfig { steps: Some(steps), ..trial.run },
            ..trial
        }
    }
}
