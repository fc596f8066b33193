//! What is searched, and what was found.

use vramfit_analysis::analysis::{Condition, Phase};
use vramfit_analysis::planning::{
    CostKind, LeftAlone, Moves, Row, SuggestedEdit, lowest_peak, recommend,
};
use vramfit_base::{Bytes, Error, ErrorKind, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::{RunConfig, StepLimit};

use super::trial::{StepTime, XlaRemat};
use super::varied::VariedCommand;
use crate::dryrun::DryrunSpec;

/// A plan that is faster by less of the time of a step is not offered: estimates are not that good.
const MIN_GAIN: f64 = 0.05;

/// What is searched.
pub struct SearchSpec {
    /// The dry run of the program as it is.
    pub trial: DryrunSpec,
    /// Other GPUs that the plans worth choosing are measured on.
    pub others: Vec<GpuSelection>,
    /// The first is that of the baseline.
    pub commands: Vec<VariedCommand>,
    /// Bytes that the peak may have, instead of what the GPU can hold.
    pub budget: Option<Bytes>,
    /// Pinned host memory that may be used.
    pub host_budget: Option<Bytes>,
    /// What may be changed.
    pub moves: Moves,
    /// Whether the fastest plan is wanted also where the program fits as it is.
    pub wants_fastest: bool,
    /// Dry runs at most.
    pub max_trials: usize,
    /// Dry runs at the same time.
    pub jobs: usize,
}

/// A measured plan.
#[derive(Clone, Debug)]
pub struct FoundRow {
    /// The plan, and what decides about it.
    pub row: Row,
    /// Index of the command.
    pub command: usize,
    /// Share of the operations of differentiated functions that run twice, from 0 to 1.
    pub recomputed_share: f64,
    /// How long a step takes.
    pub time: Option<StepTime>,
    /// What XLA's own rematerialization pass did.
    pub xla_remat: Option<XlaRemat>,
    /// The most bytes at the peak, each with who owns them and where they come from.
    pub largest: Vec<(String, u64)>,
    /// What the pool of each GPU may take; in their order, as far as measured.
    pub limits: Vec<u64>,
    /// Peak on each GPU.
    pub peaks: Vec<u64>,
    /// Peak on the first GPU if library routines take the most they may.
    pub highest_peak_bytes: u64,
    /// What the peak depends on.
    pub conditions: Vec<Condition>,
    /// After which training steps its dry run ended, unless the program did before.
    pub steps: StepLimit,
}

/// An edit of the program, and what it was measured to bring.
pub struct EditTrial {
    /// The edit.
    pub edit: SuggestedEdit,
    /// The peak with it; `None` where the program did not run to its end.
    pub peak_bytes: Option<u64>,
}

/// What a search has found.
pub struct FoundPlans {
    /// The rows; the first is the program as it is.
    pub rows: Vec<FoundRow>,
    /// Indices of those worth choosing, by bytes.
    pub front: Vec<usize>,
    /// Index of the row to recommend.
    pub recommended: usize,
    /// The fastest plan that fits, where the program fits as it is and the plan is faster by the estimate.
    pub faster: Option<usize>,
    /// Why plans could not be measured, each with how many.
    pub failures: Vec<(String, usize)>,
    /// How many dry runs were made.
    pub trials: usize,
    /// How many functions a plan can change.
    pub sites: usize,
    /// Functions that are differentiated and could not be planned.
    pub left_alone: Vec<LeftAlone>,
    /// Whether every proposed plan was measured: there were trials for all, and nobody ended the search.
    pub is_complete: bool,
    /// Whether the user ended it early.
    pub is_interrupted: bool,
    /// What plans were compared by, beside their peak.
    pub cost: CostKind,
    /// Edits of the program, and what they were measured to bring.
    pub edits: Vec<EditTrial>,
    /// The version of JAX.
    pub jax: String,
    /// What began in the program as it is after the first training steps.
    pub phases: Vec<Phase>,
    /// After which training steps the dry run of the program as it is ended, and of what is said to fit.
    pub steps: StepLimit,
}

impl FoundPlans {
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
        let best = match spec.is_met(&rows[best]) {
            true => best,
            false => lowest_peak(&rows, |row| spec.may_be_met(row)).unwrap_or(best),
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

    /// Returns `true` if a row meets the budget; unknown where the user ended the search before one did, or where that
    /// depends on how much scratch memory a library takes.
    pub fn answer(&self, spec: &SearchSpec) -> Option<bool> {
        let is_met = self.fits(spec);
        let is_open = self.is_interrupted || self.may_fit(spec);
        Some(is_met).filter(|met| *met || !is_open)
    }

    /// Returns `true` if the recommended plan meets the budget.
    pub fn fits(&self, spec: &SearchSpec) -> bool {
        spec.is_met(&self.rows[self.recommended].row)
    }

    /// Returns `true` if the recommended plan meets the budget where libraries take little enough scratch memory.
    pub fn may_fit(&self, spec: &SearchSpec) -> bool {
        spec.may_be_met(&self.rows[self.recommended].row)
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
    pub fn is_met(&self, row: &Row) -> bool {
        self.is_within(row, row.fits())
    }

    /// Returns `true` if a row meets the budget where libraries take little enough scratch memory.
    pub fn may_be_met(&self, row: &Row) -> bool {
        self.is_within(row, row.may_fit())
    }

    fn is_within(&self, row: &Row, fits_gpu: bool) -> bool {
        let fits_host = self.host_budget.is_none_or(|budget| row.host_memory_bytes <= budget.0);
        let fits_device = self.budget.map_or(fits_gpu, |budget| row.peak_bytes <= budget.0);
        fits_host && fits_device
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
