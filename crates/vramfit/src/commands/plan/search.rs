//! The search: what is searched, and what was found.

use vramfit_core::analysis::Condition;
use vramfit_core::gpu::GpuSelection;
use vramfit_core::planning::{CostKind, Moves, Row, pareto_front, recommend};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::measuring::Measuring;
use super::program_edit::MeasuredEdit;
use super::trial::{StepTime, TrialSpec, XlaRemat};
use super::vary::VariedCommand;
use crate::context::Context;
use crate::interruption;
use crate::output::Output;

pub(super) struct SearchSpec {
    pub(super) trial: TrialSpec,
    /// Other GPUs that the plans worth choosing are measured on.
    pub(super) others: Vec<GpuSelection>,
    /// The first is that of the baseline.
    pub(super) commands: Vec<VariedCommand>,
    pub(super) budget: Option<Bytes>,
    /// Pinned host memory that may be used.
    pub(super) host_budget: Option<Bytes>,
    /// What may be changed.
    pub(super) moves: Moves,
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
    /// What the peak depends on.
    pub(super) conditions: Vec<Condition>,
}

/// What a search has found.
pub(super) struct Found {
    /// The rows; the first is the program as it is.
    pub(super) rows: Vec<FoundRow>,
    /// Indices of those worth choosing, by bytes.
    pub(super) front: Vec<usize>,
    pub(super) recommended: usize,
    /// Why plans could not be measured, each with how many.
    pub(super) failures: Vec<(String, usize)>,
    pub(super) trials: usize,
    pub(super) sites: usize,
    /// Whether every proposed plan was measured: there were trials for all, and nobody ended the search.
    pub(super) is_complete: bool,
    /// Whether the user ended it early.
    pub(super) is_interrupted: bool,
    /// What plans were compared by, beside their peak.
    pub(super) cost: CostKind,
    /// Edits of the program, and what they were measured to bring.
    pub(super) edits: Vec<MeasuredEdit>,
    pub(super) jax: String,
}

/// Searches.
///
/// # Errors
/// Those of the dry run of the program as it is. A signal that comes later ends the search with what was found.
pub(super) fn run(spec: &SearchSpec, context: &Context, output: &mut Output) -> Result<Found> {
    let found = Found {
        rows: Vec::new(),
        front: Vec::new(),
        recommended: 0,
        failures: Vec::new(),
        trials: 0,
        sites: 0,
        is_complete: true,
        is_interrupted: false,
        cost: CostKind::RecomputedShare,
        edits: Vec::new(),
        jax: String::new(),
    };
    let mut measuring = Measuring {
        spec,
        context,
        output,
        found,
    };
    for command in 0..spec.commands.len() {
        let (strategy, sites) = match measuring.begin(command) {
            // What was found so far is a result.
            Err(error)
                if error.kind() == ErrorKind::Interrupted && !measuring.found.rows.is_empty() =>
            {
                break;
            }
            begun => begun?,
        };
        measuring.found.sites += sites;
        let is_complete = measuring.follow(command, strategy);
        measuring.found.is_complete &= is_complete;
    }
    let rows = |found: &Found| -> Vec<Row> {
        let rows = found.rows.iter();
        rows.map(|found| found.row.clone()).collect()
    };
    let front = pareto_front(&rows(&measuring.found));
    measuring.measure_elsewhere(&front);
    let mut found = measuring.found;
    let rows = rows(&found);
    // A program that fits needs no plan, whatever an estimate says about its time. Of several, the fastest.
    found.recommended = Some(0)
        .filter(|&baseline| {
            spec.commands.len() == 1 && rows.get(baseline).is_some_and(|row| spec.is_met(row))
        })
        .or_else(|| recommend(&rows, |row| spec.is_met(row)))
        .ok_or_else(|| Error::new(ErrorKind::Internal, "the search has no rows"))?;
    found.front = front;
    found.is_interrupted = interruption::received().is_some();
    found.is_complete &= !found.is_interrupted;
    Ok(found)
}

impl SearchSpec {
    /// Says whether a row meets the budget.
    pub(super) fn is_met(&self, row: &Row) -> bool {
        let fits_host = self
            .host_budget
            .is_none_or(|budget| row.host_memory_bytes <= budget.0);
        fits_host
            && match self.budget {
                Some(budget) => row.peak_bytes <= budget.0,
                None => row.fits.first() == Some(&true),
            }
    }

    /// Says whether the commands have batches of different sizes, all of them known.
    pub(super) fn has_several_batches(&self) -> bool {
        let batches: Option<Vec<u64>> = self.commands.iter().map(VariedCommand::batch).collect();
        batches.is_some_and(|batches| batches.iter().any(|batch| *batch != batches[0]))
    }

    pub(super) fn trial(&self, command: usize) -> TrialSpec {
        TrialSpec {
            command: self.commands[command].words.clone(),
            ..self.trial.clone()
        }
    }
}
