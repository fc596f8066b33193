//! Which program is the training step, and ending a run after N of it.
//!
//! A training step is a program whose results come back as its arguments. Rollouts, samplers and
//! recurrent networks do that, too, before any training, and a validation that comes first is often
//! as large as the step. So a program is taken for the step on one of two kinds of evidence:
//!
//! - It has a *backward pass* (JAX writes `transpose(…)` into the names of its operations), and
//!   floating-point results of an earlier call reach its arguments, through whatever programs
//!   update them in between. A rollout, a validation and a sampler have no backward pass. Where as
//!   much of the same sizes stays as it is (gradients that are summed up while the parameters wait for
//!   their update), it must be called thirty times as often.
//! - No program so far has a backward pass, and *everything that is alive* is what the program
//!   returns and takes back, or new. A rollout leaves the policy's parameters as they are. A program
//!   that needs less than 1 MiB must be called a hundred times as often: scripts begin with such, and
//!   single operations on a few numbers are programs of this kind.
//!
//! In both cases nothing new may have been executed since its last call. Without such a program the
//! run is not cut. `--step NAME` replaces the evidence. The facts go into the trace as notes, so that
//! reports take the same program for the step.

use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use vramfit_core::trace::{Note, is_program_named};

use crate::buffer::origin::Origin;
use crate::hooks;
use crate::session::shutdown;

/// A program that is about to be executed, as its first device sees it.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub(crate) program: u32,
    pub(crate) name: &'a str,
    /// What it needs in all: arguments, outputs, temporaries.
    pub(crate) needed_bytes: u64,
    /// Whether it has a backward pass.
    pub(crate) backward: bool,
    pub(crate) arguments: &'a [Argument],
}

/// One argument of an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) origin: Origin,
    pub(crate) bytes: u64,
    /// Whether it holds floating-point numbers: keys and counters come back from any program.
    pub(crate) float: bool,
}

/// What was asked for on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// End the run after so many steps.
    pub(crate) steps: Option<u64>,
    /// The name of the program that is the step.
    pub(crate) name: Option<&'a str>,
}

/// What an execution means for the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    #[default]
    GoOn,
    /// It is the last one that is wanted.
    Over,
    /// It is one more.
    Further,
}

/// What was executed so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    programs: FxHashMap<u32, Watched>,
    /// How many of them have a backward pass.
    with_backward: u32,
    is_announced: bool,
    over: Option<Over>,
}

#[derive(Clone, Copy, Debug)]
struct Over {
    needed_bytes: u64,
    backward: bool,
}

/// One program.
#[derive(Debug, Default)]
struct Watched {
    calls: u64,
    /// How many programs were known when it was called last.
    known: usize,
    /// Its bit in [`Origin::lineage`]; none without a backward pass.
    bit: u64,
    /// The arguments of its last call.
    last: Vec<u64>,
    /// Calls to which state came back.
    rounds: u64,
    /// Calls to which state came back while more than half as much of the same sizes stayed.
    mixed_rounds: u64,
    is_noted: bool,
}

/// What of a program's arguments came back from it, and what stayed as it was.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    returned_bytes: u64,
    kept_bytes: u64,
    /// Of what stayed, the arrays that are as large as one that came back.
    kept_alike_bytes: u64,
}

/// What is to be done about an execution.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// To be set in the origins of what it returns.
    pub(crate) lineage: u64,
    pub(crate) progress: Progress,
    /// To be written into the trace before it.
    pub(crate) notes: Vec<Note>,
    /// To be written when it was met and was the last one.
    pub(crate) cut: Option<Note>,
}

/// As many times as often must a program be called to whose calls sums of gradients may come back.
/// They are rarely summed up over more calls than that.
const MIXED_PATIENCE: u64 = 30;
/// The same for a small program without a backward pass.
const SMALL_PATIENCE: u64 = 100;
const SMALL_BYTES: u64 = 1 << 20;
/// State below this part of what stays the same is no state of a training.
const MIN_RETURNED_PART: u64 = 10_000;
/// Bytes that may be alive and not come back from a program without a backward pass: scalars, keys,
/// and a loss of each call (the allocator's smallest piece). Hardly a network has so few parameters.
const MAX_LEFT_OVER: u64 = 16 << 10;
const LEFT_OVER_PER_CALL: u64 = 256;

impl Watch {
    /// Takes note of an execution. `in_use_bytes` returns what is in use on the device; asking takes
    /// a moment.
    fn begin(
        &mut self,
        execution: &Execution<'_>,
        wanted: &Wanted<'_>,
        in_use_bytes: impl FnOnce() -> u64,
    ) -> Outcome {
        let mut notes = Vec::new();
        if !std::mem::replace(&mut self.is_announced, true) {
            notes.push(Note::Search {
                steps: wanted.steps,
                name: wanted.name.map(str::to_owned),
            });
        }
        let known_before = self.programs.len();
        let watched = match self.programs.entry(execution.program) {
            Entry::Occupied(old) => old.into_mut(),
            Entry::Vacant(new) => {
                let mut watched = Watched::default();
                if execution.backward {
                    // More than 64 share bits, which may only take one's results for another's.
                    watched.bit = 1 << (self.with_backward % 64);
                    self.with_backward += 1;
                }
                new.insert(watched)
            }
        };
        let lineages = execution.arguments.iter().map(|one| one.origin.lineage);
        let lineage = lineages.fold(watched.bit, |all, one| all | one);
        let named = wanted
            .name
            .map(|name| is_program_named(execution.name, name));
        let is_first = watched.calls == 0;
        let is_steady = !is_first && watched.known == known_before;
        watched.calls += 1;

        let flow = watched.flow(execution);
        let returned = match named {
            Some(_) => false,
            None if execution.backward => {
                flow.returned_bytes > 0
                    && flow.returned_bytes >= flow.kept_bytes / MIN_RETURNED_PART
            }
            None if self.with_backward > 0 || flow.returned_bytes == 0 => false,
            None => flow.takes_all(execution, watched.calls, in_use_bytes()),
        };
        if returned && flow.kept_alike_bytes <= flow.returned_bytes / 2 {
            watched.rounds += 1;
        } else if returned {
            watched.mixed_rounds += 1;
        }
        let is_worth_noting = match named {
            Some(named) => named,
            None => returned && (execution.backward || watched.ran_often_enough(0, execution)),
        };
        if (is_first && execution.backward) || (is_worth_noting && !watched.is_noted) {
            watched.is_noted = is_worth_noting;
            notes.push(Note::Program {
                program: execution.program,
                backward: execution.backward,
                named: named == Some(true),
                returned_bytes: if returned { flow.returned_bytes } else { 0 },
            });
        }
        watched.last.clear();
        let ids = execution.arguments.iter().map(|one| one.origin.id);
        watched.last.extend(ids);
        let is_over = wanted.steps.is_some_and(|steps| match named {
            Some(named) => named && watched.calls >= steps,
            None => is_steady && returned && watched.ran_often_enough(steps, execution),
        });
        let calls = watched.calls;
        let known = self.programs.len();
        if let Some(watched) = self.programs.get_mut(&execution.program) {
            watched.known = known;
        }

        let mut cut = None;
        let progress = match self.over {
            // Smaller programs may be those of an evaluation, or of saving what was trained.
            Some(over) if execution.needed_bytes < over.needed_bytes => Progress::GoOn,
            Some(over) if over.backward && !execution.backward => Progress::GoOn,
            Some(_) => Progress::Further,
            None if is_over => {
                self.over = Some(Over {
                    needed_bytes: execution.needed_bytes,
                    backward: execution.backward,
                });
                cut = Some(Note::Cut {
                    program: execution.program,
                    calls,
                });
                Progress::Over
            }
            None => Progress::GoOn,
        };
        Outcome {
            lineage,
            progress,
            notes,
            cut,
        }
    }
}

impl Watched {
    /// Divides the arguments of a call: what came back, what is the same as in the last call.
    fn flow(&self, execution: &Execution<'_>) -> Flow {
        let mut flow = Flow::default();
        if self.last.len() != execution.arguments.len() {
            return flow;
        }
        let mut sizes = Vec::new();
        for (argument, last) in execution.arguments.iter().zip(&self.last) {
            let came_back = match execution.backward {
                true => argument.float && argument.origin.lineage & self.bit != 0,
                false => argument.origin.maker == Some(execution.program),
            };
            if argument.origin.id == *last {
                flow.kept_bytes += argument.bytes;
            } else if came_back {
                flow.returned_bytes += argument.bytes;
                sizes.push(argument.bytes);
            }
        }
        sizes.sort_unstable();
        let arguments = execution.arguments.iter().zip(&self.last);
        let kept_alike = arguments
            .filter(|(argument, last)| argument.origin.id == **last)
            .map(|(argument, _)| argument.bytes)
            .filter(|bytes| sizes.binary_search(bytes).is_ok());
        flow.kept_alike_bytes = kept_alike.sum();
        flow
    }

    /// Says whether it was called often enough for `steps` steps. One call does not show that its
    /// results come back, so at least two are needed.
    fn ran_often_enough(&self, steps: u64, execution: &Execution<'_>) -> bool {
        let steps = steps.max(2);
        let patience = match execution.backward || execution.needed_bytes >= SMALL_BYTES {
            true => 1,
            false => SMALL_PATIENCE,
        };
        let mixed = patience.max(MIXED_PATIENCE);
        // The first call has nothing that could come back.
        let all = self.rounds + self.mixed_rounds + 1;
        self.rounds + 1 >= steps.saturating_mul(patience) || all >= steps.saturating_mul(mixed)
    }
}

impl Flow {
    /// Says whether all that is alive goes through the program, but for scalars.
    fn takes_all(&self, execution: &Execution<'_>, calls: u64, in_use_bytes: u64) -> bool {
        let piece = |bytes: u64| bytes.next_multiple_of(256);
        let taken = execution.arguments.iter().map(|one| piece(one.bytes));
        let left_over = in_use_bytes.saturating_sub(taken.sum());
        let allowed = MAX_LEFT_OVER + LEFT_OVER_PER_CALL * calls;
        self.kept_bytes <= MAX_LEFT_OVER && left_over <= allowed
    }
}

static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

/// Takes note of an execution before it; see [`Outcome`].
pub(crate) fn begin(
    execution: &Execution<'_>,
    wanted: &Wanted<'_>,
    in_use_bytes: impl FnOnce() -> u64,
) -> Outcome {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch
        .get_or_insert_default()
        .begin(execution, wanted, in_use_bytes)
}

/// Takes back that the run is over: the last step was refused memory, and the program may go on.
pub(crate) fn take_back() {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch.get_or_insert_default().over = None;
}

/// When the steps are done, asks the Python side to end the run, and tells it of each step that the
/// main thread executes all the same. Not to be called with the machine locked: it waits for the
/// Python interpreter.
pub(crate) fn end(progress: Progress) {
    match (progress, hooks::get()) {
        (Progress::Over, Some(hooks)) => hooks.stop(),
        (Progress::Further, Some(hooks)) if shutdown::is_main_thread() => hooks.further_step(),
        (Progress::Further, _) => shutdown::rest(),
        _ => {}
    }
}

#[cfg(test)]
#[path = "step_detector_tests.rs"]
mod tests;
