//! Ending a run after N steps.
//!
//! Which program is the training step is not known before the run has ended, and ending it too
//! early would give a wrong answer; ending it a little late only takes time. So a program counts as
//! the step when it is the largest that was run so far, works on the run's state (it reuses its
//! arguments, or they are a good part of all that is alive; an initialiser, which may run once a
//! layer, does neither), and nothing new was run since its last execution.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::{ending, hooks};

/// One execution of a program on one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Execution {
    pub(crate) program: u32,
    /// What it needs in all: arguments, outputs, temporaries.
    pub(crate) needed_bytes: u64,
    pub(crate) argument_bytes: u64,
    /// How much of its arguments it reuses for its outputs.
    pub(crate) alias_bytes: u64,
    /// What is alive on the device when it has run.
    pub(crate) in_use_bytes: u64,
}

/// What was executed so far.
#[derive(Debug, Default)]
struct Watch {
    seen: FxHashMap<u32, Seen>,
    largest_bytes: u64,
    /// What the step needs, once it ran often enough.
    over: Option<u64>,
}

/// What an execution means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    GoOn,
    /// It was the last one that was wanted.
    Over,
    /// It was one more.
    Further,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    count: u64,
    /// How many programs were known when this one ran last.
    known: usize,
}

/// A step whose arguments hold less than this much of what is alive (gradients alone, beside an
/// optimiser's state) must run ten times as often before it is believed.
const MOST_OF_IT: f64 = 0.4;
/// Below this, a program is no step: it works on one array of many.
const A_PART_OF_IT: f64 = 0.1;
/// Programs smaller than this must run a hundred times as often: a script begins with small things.
const SMALL_BYTES: u64 = 1 << 20;

impl Watch {
    /// Notes an execution and says whether the run is over with it, or was so before.
    fn note(&mut self, execution: &Execution, limit: u64) -> Verdict {
        if let Some(step_bytes) = self.over {
            // Smaller programs may be those of an evaluation, or of saving what was trained.
            return match execution.needed_bytes >= step_bytes {
                true => Verdict::Further,
                false => Verdict::GoOn,
            };
        }
        self.largest_bytes = self.largest_bytes.max(execution.needed_bytes);
        let known_before = self.seen.len();
        let seen = self
            .seen
            .entry(execution.program)
            .or_insert(Seen { count: 0, known: 0 });
        let steady = seen.known == known_before;
        seen.count += 1;
        let count = seen.count;
        let known = self.seen.len();
        self.seen.insert(execution.program, Seen { count, known });

        let share = execution.argument_bytes as f64 / execution.in_use_bytes.max(1) as f64;
        let patience = if execution.alias_bytes > 0 || share >= MOST_OF_IT {
            1
        } else if share >= A_PART_OF_IT {
            10
        } else {
            return Verdict::GoOn;
        };
        let patience = if execution.needed_bytes < SMALL_BYTES {
            100 * patience
        } else {
            patience
        };
        // One execution does not show that nothing new comes before the next.
        let wanted = limit.max(2).saturating_mul(patience);
        let over = steady && count >= wanted && execution.needed_bytes == self.largest_bytes;
        if !over {
            return Verdict::GoOn;
        }
        self.over = Some(execution.needed_bytes);
        Verdict::Over
    }
}

static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

/// Notes an execution; when the steps are done, the Python side is asked to end the run, and told
/// of each step that the main thread executes all the same.
pub(crate) fn note(execution: &Execution, limit: u64) {
    let verdict = {
        let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        watch.get_or_insert_default().note(execution, limit)
    };
    // The lock is gone: the other side waits for the Python interpreter.
    match (verdict, hooks::get()) {
        (Verdict::Over, Some(hooks)) => hooks.stop(),
        (Verdict::Further, Some(hooks)) if ending::is_main_thread() => hooks.further_step(),
        (Verdict::Further, _) => ending::rest(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Runs a list of (program, needed, arguments, in use) and returns after how many it was over.
    fn over_after(
        limit: u64,
        executions: impl IntoIterator<Item = (u32, u64, u64, u64)>,
    ) -> Option<usize> {
        let mut watch = Watch::default();
        executions
            .into_iter()
            .position(|(program, needed_bytes, argument_bytes, in_use_bytes)| {
                watch.note(
                    &Execution {
                        program,
                        needed_bytes,
                        argument_bytes,
                        alias_bytes: 0,
                        in_use_bytes,
                    },
                    limit,
                ) == Verdict::Over
            })
    }

    /// Draws, scales and keeps one matrix of a GiB for each layer.
    fn layers(count: u64) -> Vec<(u32, u64, u64, u64)> {
        (0..count)
            .flat_map(|layer| {
                let held = layer * GIB;
                [
                    (0, 20, 12, held + 8),
                    (1, GIB + 8, 8, held + GIB),
                    (2, 2 * GIB, GIB, held + 2 * GIB),
                ]
            })
            .collect()
    }

    #[test]
    fn a_training_step_is_counted_and_its_initialisation_is_not() {
        for limit in [2, 3, 7] {
            let mut run = layers(24);
            let before = run.len();
            run.extend(std::iter::repeat_n((3, 100 * GIB, 72 * GIB, 73 * GIB), 50));
            assert_eq!(
                over_after(limit, run),
                Some(before + limit as usize - 1),
                "{limit}"
            );
        }
    }

    #[test]
    fn a_step_without_donation_is_counted() {
        // Old and new state are alive together when it has run.
        assert_eq!(over_after(3, [(0, 3 * GIB, GIB, 2 * GIB); 9]), Some(2));
    }

    #[test]
    fn a_step_that_reuses_its_arguments_is_counted_beside_whatever_else_is_alive() {
        let mut watch = Watch::default();
        let step = Execution {
            program: 0,
            needed_bytes: 3 * GIB,
            argument_bytes: GIB,
            alias_bytes: GIB / 2,
            in_use_bytes: 50 * GIB,
        };
        let over = |_: &i32| watch.note(&step, 3) == Verdict::Over;
        assert_eq!((1..9).find(over), Some(3));
    }

    #[test]
    fn after_the_end_only_programs_as_large_as_the_step_are_further_steps() {
        let mut watch = Watch::default();
        let run = |program, needed_bytes| Execution {
            program,
            needed_bytes,
            argument_bytes: GIB,
            alias_bytes: GIB,
            in_use_bytes: GIB,
        };
        let mut note = |execution| watch.note(&execution, 2);
        assert_eq!(note(run(0, 3 * GIB)), Verdict::GoOn);
        assert_eq!(note(run(0, 3 * GIB)), Verdict::Over);
        // An evaluation, the step once more, and the step compiled anew.
        assert_eq!(note(run(1, 2 * GIB)), Verdict::GoOn);
        assert_eq!(note(run(0, 3 * GIB)), Verdict::Further);
        assert_eq!(note(run(2, 3 * GIB)), Verdict::Further);
    }

    #[test]
    fn one_step_cannot_be_told_from_an_initialisation_so_two_are_run() {
        assert_eq!(over_after(1, [(0, 2 * GIB, GIB, GIB); 9]), Some(1));
    }

    #[test]
    fn gradients_beside_an_optimisers_state_take_longer_to_believe() {
        assert_eq!(over_after(3, [(0, 5 * GIB, GIB, 3 * GIB); 99]), Some(29));
    }

    #[test]
    fn a_loop_over_keys_at_the_beginning_does_not_end_the_run() {
        let mut run = vec![(0, 24, 12, 300); 250];
        run.extend([(1, 3 * GIB, 2 * GIB, 2 * GIB); 9]);
        assert_eq!(over_after(3, run), Some(252));
    }

    #[test]
    fn an_evaluation_smaller_than_the_step_does_not_end_the_run() {
        let mut run = vec![(0, 9 * GIB, 2 * GIB, 2 * GIB)];
        run.extend([(1, 4 * GIB, 2 * GIB, 2 * GIB); 20]);
        assert_eq!(over_after(3, run.clone()), None);
        run.extend([(0, 9 * GIB, 2 * GIB, 2 * GIB); 2]);
        assert_eq!(over_after(3, run), Some(22));
    }

    #[test]
    fn a_step_is_not_over_while_new_programs_come_between() {
        let run = (0..9).flat_map(|n| [(100 + n, 300, 4, 3 * GIB), (0, 3 * GIB, 2 * GIB, 2 * GIB)]);
        assert_eq!(over_after(3, run), None);
    }
}
