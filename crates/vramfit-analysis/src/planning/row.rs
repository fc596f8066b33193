//! Measured plans: which are worth choosing.

use super::plan::Plan;

/// What plans of one search are compared by, beside their peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// The estimated time of a step.
    StepTime,
    /// That time divided by the batch, where the plans have several.
    SampleTime,
    /// What is computed twice: too much of the time is unknown.
    RecomputedShare,
}

/// A plan, and what a dry run with it has measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was changed.
    pub plan: Plan,
    /// Peak of the GPU that is fullest, in bytes.
    pub peak_bytes: u64,
    /// What it costs, by the [`CostKind`] of the search; lower is faster.
    pub cost: f64,
    /// Pinned host memory that its programs take, in bytes.
    pub host_memory_bytes: u64,
    /// Whether it fits on each GPU that was asked about, in their order; `None` where that depends on how much scratch
    /// memory a library takes.
    pub fits: Vec<Option<bool>>,
    /// Whether it does not fit on the first GPU although the pool has as many bytes as its peak: no free block is
    /// large enough.
    pub is_fragmented: bool,
    /// Whether XLA's own rematerialization pass changed a program.
    pub xla_remat: bool,
}

impl Row {
    /// Returns `true` if it fits on the first GPU, whatever scratch memory libraries take.
    pub fn fits(&self) -> bool {
        self.fits.first() == Some(&Some(true))
    }

    /// Returns `true` if it fits on the first GPU where libraries take little enough scratch memory.
    pub fn may_fit(&self) -> bool {
        self.fits.first().is_some_and(|fits| *fits != Some(false))
    }

    /// Returns a row of a plan that was not measured.
    #[cfg(test)]
    pub(super) fn of(plan: Plan) -> Self {
        Row {
            plan,
            peak_bytes: 0,
            cost: 0.0,
            host_memory_bytes: 0,
            fits: Vec::new(),
            is_fragmented: false,
            xla_remat: false,
        }
    }

    fn changes(&self) -> usize {
        self.plan.moves().len()
    }
}

/// Returns the indices of the rows that no other row beats in both bytes and cost, by bytes.
pub fn pareto_front(rows: &[Row]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&rows[a], &rows[b]);
        let by_peak = a.peak_bytes.cmp(&b.peak_bytes);
        by_peak.then(a.cost.total_cmp(&b.cost)).then(a.changes().cmp(&b.changes()))
    });
    let mut front: Vec<usize> = Vec::new();
    for index in order {
        let is_beaten = front.last().is_some_and(|&last| rows[last].cost <= rows[index].cost);
        if !is_beaten {
            front.push(index);
        }
    }
    front
}

/// Returns the row to choose for a budget: the cheapest that meets it; where none does, that with the
/// lowest peak. `meets` says whether a row meets it.
pub fn recommend(rows: &[Row], meets: impl Fn(&Row) -> bool) -> Option<usize> {
    let all = 0..rows.len();
    let cheapest = all.clone().filter(|&index| meets(&rows[index])).min_by(|&a, &b| {
        let (a, b) = (&rows[a], &rows[b]);
        let key = |row: &Row| (row.changes(), row.peak_bytes);
        a.cost.total_cmp(&b.cost).then(key(a).cmp(&key(b)))
    });
    cheapest.or_else(|| all.min_by_key(|&index| rows[index].peak_bytes))
}
