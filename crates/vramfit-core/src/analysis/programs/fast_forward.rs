//! Programs and their calls before and after a pass, and what the calls say of later passes.
//!
//! Which program needs most changes by a comparison of products that grow with each pass, so the same
//! pass may come to another result later. How many passes that takes is computed.

use rustc_hash::FxHashMap;

use super::{Evidence, ProgramEntry, Programs};
use crate::analysis::compilations::Compilation;
use crate::replay::Period;
use crate::trace::TextId;

/// A number of passes that no trace has.
pub(in crate::analysis) const UNLIMITED: u64 = u64::MAX;

/// The programs at one moment.
pub(in crate::analysis) struct ProgramsSnapshot {
    entries: Vec<EntrySnapshot>,
    compilations: usize,
    has_step_search: bool,
    step: Option<usize>,
    loaded: FxHashMap<u32, (usize, u64)>,
}

struct EntrySnapshot {
    variant: Option<(TextId, u64)>,
    scratch: usize,
    compilations: u64,
    loaded: u64,
    calls: u64,
    calls_since_step: u64,
    calls_per_step: u64,
    evidence: Evidence,
    first_call: Option<u64>,
    ended: Option<(u64, Vec<u64>)>,
    steady_state: Vec<u64>,
}

/// A call in a pass that is watched: how it compared with the programs that led then.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct RecordedCall {
    pub(in crate::analysis) entry: usize,
    /// What the program is compared by, this call included.
    pub(in crate::analysis) rank: Rank,
    /// The step right before the call.
    pub(in crate::analysis) step: Option<(usize, Rank)>,
    /// The program whose calls were the steps of the search for leaks right before the call; `None`
    /// where it was not compared with it.
    pub(in crate::analysis) step_program: Option<(usize, Rank)>,
    /// Whether the step_program was changed by it.
    pub(in crate::analysis) changes_step_program: bool,
    pub(in crate::analysis) is_step: bool,
}

/// The evidence for being the step, which no pass changes, and what a program has needed.
type Rank = (Evidence, u128);

impl Programs {
    /// Returns what later events depend on.
    pub(in crate::analysis) fn snapshot(&self) -> ProgramsSnapshot {
        let Programs { entries, compilations, has_step_search, step, by_key: _, loaded } = self;
        ProgramsSnapshot {
            entries: entries.iter().map(ProgramEntry::snapshot).collect(),
            compilations: compilations.len(),
            has_step_search: *has_step_search,
            step: *step,
            loaded: loaded.clone(),
        }
    }

    /// Says whether each further pass does the same.
    pub(in crate::analysis) fn repeats(&self, before: &ProgramsSnapshot, period: &Period) -> bool {
        let calls = |entries: &[EntrySnapshot]| Some(entries.get(self.step?)?.calls);
        let has_step = calls(&before.entries) != self.step.map(|step| self.entries[step].calls);
        self.step == before.step
            && self.has_step_search == before.has_step_search
            && self.loaded == before.loaded
            && self.entries.len() == before.entries.len()
            && before.entries.iter().zip(&self.entries).all(|(before, after)| {
                let is_reset = !has_step || before.calls_since_step == after.calls_since_step;
                is_reset && before.repeats(after, period)
            })
    }

    /// Returns for how many more passes all calls compare as they did in this one.
    pub(in crate::analysis) fn passes_until_change(
        &self,
        before: &ProgramsSnapshot,
        calls: &[RecordedCall],
    ) -> u64 {
        let growth = |entry: usize| -> i128 {
            let calls = self.entries[entry].calls - before.entries[entry].calls;
            i128::from(calls) * i128::from(self.entries[entry].key.sizes.needed_bytes().max(1))
        };
        let mut passes = UNLIMITED;
        for call in calls {
            let (evidence, needed) = call.rank;
            // Of programs with other evidence always the same one is_step.
            if let Some((step, (_, step_needed))) =
                call.step.filter(|(step, rank)| *step != call.entry && rank.0 == evidence)
            {
                // It is_step from a difference of 0 on if it was compiled first, else from 1 on.
                let threshold = i128::from(step < call.entry);
                let difference = needed as i128 - step_needed as i128;
                let rate = growth(call.entry) - growth(step);
                passes = passes.min(passes_on_one_side(difference, rate, threshold));
            }
            if let Some((step_program, (_, step_program_needed))) =
                call.step_program.filter(|(step_program, _)| *step_program != call.entry)
                && call.is_step
            {
                let difference = needed as i128 - 2 * step_program_needed as i128;
                let rate = growth(call.entry) - 2 * growth(step_program);
                passes = passes.min(passes_on_one_side(difference, rate, 0));
            }
        }
        passes
    }

    /// Lets so many more passes be over.
    pub(in crate::analysis) fn skip_passes(
        &mut self,
        before: &ProgramsSnapshot,
        period: &Period,
        passes: u64,
    ) {
        for (entry, before) in self.entries.iter_mut().zip(&before.entries) {
            entry.compilations += passes * (entry.compilations - before.compilations);
            entry.loaded += passes * (entry.loaded - before.loaded);
            entry.calls += passes * (entry.calls - before.calls);
            entry.calls_since_step += passes * (entry.calls_since_step - before.calls_since_step);
            if let Some((time, _)) = &mut entry.ended {
                period.move_time(time, passes);
            }
        }
        for index in before.compilations..self.compilations.len() {
            let one = self.compilations[index];
            self.compilations.push(Compilation {
                event: one.event + period.events,
                times: passes,
                every: period.events,
                ..one
            });
        }
    }
}

/// Returns how many steps of `rate` leave a difference on the side of a threshold where it is; the
/// threshold belongs to the upper side.
fn passes_on_one_side(difference: i128, rate: i128, threshold: i128) -> u64 {
    let passes = match difference >= threshold {
        true if rate < 0 => (difference - threshold) / -rate,
        false if rate > 0 => (threshold - 1 - difference) / rate,
        _ => return UNLIMITED,
    };
    u64::try_from(passes).unwrap_or(UNLIMITED)
}

impl ProgramEntry {
    fn snapshot(&self) -> EntrySnapshot {
        let ProgramEntry {
            key: _,
            program: _,
            site: _,
            variant,
            scratch,
            // Computed from `scratch`.
            scratch_limits: _,
            compilations,
            loaded,
            calls,
            calls_since_step,
            calls_per_step,
            evidence,
            first_call,
            ended,
            steady_state,
        } = self;
        EntrySnapshot {
            variant: *variant,
            // Needs are added, never taken away.
            scratch: scratch.len(),
            compilations: *compilations,
            loaded: *loaded,
            calls: *calls,
            calls_since_step: *calls_since_step,
            calls_per_step: *calls_per_step,
            evidence: *evidence,
            first_call: *first_call,
            ended: ended.clone(),
            steady_state: steady_state.clone(),
        }
    }
}

impl EntrySnapshot {
    fn repeats(&self, after: &ProgramEntry, period: &Period) -> bool {
        self.variant == after.variant
            && self.scratch == after.scratch.len()
            && self.evidence == after.evidence
            && self.first_call == after.first_call
            && self.calls_per_step == after.calls_per_step
            && self.steady_state == after.steady_state
            && match (&self.ended, &after.ended) {
                (Some((before, levels)), Some((after, now))) => {
                    levels == now && period.repeats_time(*before, *after)
                }
                (None, None) => true,
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_stays_on_its_side_for_as_long_as_counting_says() {
        for difference in -20..20 {
            for rate in -7..7 {
                for threshold in [0, 1] {
                    let side = |passes: i128| difference + passes * rate >= threshold;
                    let counted = (1..100).take_while(|passes| side(*passes) == side(0)).count();
                    let computed = passes_on_one_side(difference, rate, threshold);
                    assert_eq!(computed.min(99), counted as u64, "{difference} {rate} {threshold}");
                }
            }
        }
    }
}
