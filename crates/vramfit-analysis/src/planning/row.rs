//! Measured plans: which are worth choosing.

use std::cmp::Ordering;

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

    /// Orders rows by their cost, then by how much they change, then by their peak.
    fn compare_cost(&self, other: &Row) -> Ordering {
        let key = |row: &Row| (row.changes(), row.peak_bytes);
        self.cost.total_cmp(&other.cost).then(key(self).cmp(&key(other)))
    }
}

/// Returns the indices of the rows that no other row beats in both bytes and cost, by bytes. A saving that is
/// [negligible](is_negligible) beats nothing.
pub fn pareto_front(rows: &[Row]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&rows[a], &rows[b]);
        let by_peak = a.peak_bytes.cmp(&b.peak_bytes);
        by_peak.then(a.cost.total_cmp(&b.cost)).then(a.changes().cmp(&b.changes()))
    });
    let mut front: Vec<usize> = Vec::new();
    for index in order {
        let row = &rows[index];
        let is_simpler = |last: &Row| match row.cost.total_cmp(&last.cost) {
            Ordering::Less => true,
            Ordering::Equal => row.changes() < last.changes(),
            Ordering::Greater => false,
        };
        while front.last().map(|&last| &rows[last]).is_some_and(|last| {
            is_negligible(row.peak_bytes, last.peak_bytes)
                && row.fits == last.fits
                && is_simpler(last)
        }) {
            front.pop();
        }
        let is_beaten = front.last().is_some_and(|&last| rows[last].cost <= row.cost);
        if !is_beaten {
            front.push(index);
        }
    }
    front
}

/// Returns the row to choose for a budget: the cheapest that meets it; where none does, that with the
/// [lowest peak](lowest_peak). `meets` says whether a row meets it.
pub fn recommend(rows: &[Row], meets: impl Fn(&Row) -> bool) -> Option<usize> {
    let meeting = (0..rows.len()).filter(|&index| meets(&rows[index]));
    let cheapest = meeting.min_by(|&a, &b| rows[a].compare_cost(&rows[b]));
    cheapest.or_else(|| lowest_peak(rows, |_| true))
}

/// Returns the row with the lowest peak of those that are selected; of rows that save [negligibly](is_negligible) more
/// than another, that which costs and changes less.
pub fn lowest_peak(rows: &[Row], is_selected: impl Fn(&Row) -> bool) -> Option<usize> {
    let selected = || (0..rows.len()).filter(|&index| is_selected(&rows[index]));
    let lowest = selected().map(|index| rows[index].peak_bytes).min()?;
    let as_low = selected().filter(|&index| is_negligible(rows[index].peak_bytes, lowest));
    as_low.min_by(|&a, &b| rows[a].compare_cost(&rows[b]))
}

/// Returns `true` if a peak is higher than another by so little that it says nothing of a plan: JAX leaves scalars in
/// reference cycles, and a program that runs other Python under a plan collects its garbage at another moment.
fn is_negligible(peak_bytes: u64, lower_bytes: u64) -> bool {
    const NEGLIGIBLE_PART: u64 = 1000;
    peak_bytes - lower_bytes <= lower_bytes / NEGLIGIBLE_PART
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::chunk::{Chunk, MappingTransform};

    const PLAIN_BYTES: u64 = 810_681_344;

    fn row(chunks: usize, peak_bytes: u64, cost: f64) -> Row {
        let chunk = Chunk {
            function: "a.py:3 (f)".to_owned(),
            elements: 96,
            batch_size: 24,
            transform: MappingTransform::Vmap,
        };
        let plan = Plan { chunks: vec![chunk; chunks], ..Plan::default() };
        Row { peak_bytes, cost, fits: vec![Some(false)], ..Row::of(plan) }
    }

    #[test]
    fn a_change_that_saves_next_to_nothing_is_not_chosen() {
        for saved_bytes in [0, 256, 4096] {
            for cost in [1.0, 2.0] {
                let rows = [row(1, PLAIN_BYTES - saved_bytes, cost), row(0, PLAIN_BYTES, 1.0)];
                assert_eq!(recommend(&rows, |_| false), Some(1), "{saved_bytes} {cost}");
                assert_eq!(pareto_front(&rows), [1], "{saved_bytes} {cost}");
            }
        }
    }

    #[test]
    fn a_change_that_saves_much_or_makes_it_fit_is_chosen() {
        let rows = [row(1, PLAIN_BYTES / 2, 2.0), row(0, PLAIN_BYTES, 1.0)];
        assert_eq!(recommend(&rows, |_| false), Some(0));
        assert_eq!(pareto_front(&rows), [0, 1]);
        let fits = Row { fits: vec![Some(true)], ..row(1, PLAIN_BYTES - 256, 2.0) };
        let rows = [fits, row(0, PLAIN_BYTES, 1.0)];
        assert_eq!(recommend(&rows, Row::fits), Some(0));
        assert_eq!(pareto_front(&rows), [0, 1]);
    }
}
