//! Detects which program is the training step, and ends the run after N steps, or when it is steady.
//!
//! A training step is a program whose results return as its arguments. Rollouts, samplers and
//! recurrent networks do that, too, before any training, and a validation that comes first is often
//! as large as the step. So there are two kinds of evidence that a program is the step:
//!
//! - It has a *backward pass* (JAX writes `transpose(…)` into the names of its operations), and
//!   floating-point results of an earlier call reach its arguments, through whatever programs
//!   update them in between. A rollout, a validation and a sampler have no backward pass. Where
//!   arguments of the same sizes stay unchanged (gradients are accumulated while the parameters wait for
//!   their update), it must be called thirty times as often.
//! - No program so far has a backward pass, and *all live memory* is what the program returns and takes
//!   as arguments again, or new. A rollout leaves the policy's parameters unchanged. A program
//!   that needs less than 1 MiB must be called a hundred times as often: scripts begin with such programs,
//!   and so does eager code on a few numbers.
//!
//! In both cases no new program may have been executed since its last call. Without such a program the
//! run is not ended. `--step NAME` replaces the evidence. The evidence goes into the trace as notes, so
//! that reports agree on which program is the step.
//!
//! A step is over when the next one begins: an update of the parameters may be operations of their own, after
//! the program that is the step. So the run goes on after the last call that was asked for, and ends with the
//! one after it, which returns its results but takes no memory and is not recorded.

use std::collections::hash_map::Entry;
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use vramfit_model::run_config::StepLimit;
use vramfit_model::trace::{Note, is_program_named};

use super::program_history::{Execution, ProgramHistory};
use crate::hooks;
use crate::lock;
use crate::session::shutdown;

/// The step options of the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepOptions<'a> {
    /// After which steps to end the run.
    pub(crate) limit: Option<StepLimit>,
    /// The name of the program that is the step.
    pub(crate) name: Option<&'a str>,
}

/// How far an execution brings the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunProgress {
    #[default]
    Continue,
    /// It is the last step, which is not over yet.
    Finished,
    /// The last step is over, and this is the one after it.
    Over,
    /// It is a step after that one.
    Extra,
}

/// Searches the executions of a run for the training step.
#[derive(Debug, Default)]
pub(crate) struct StepDetector {
    programs: FxHashMap<u32, ProgramHistory>,
    /// How many of them have a backward pass.
    with_backward: u32,
    is_search_noted: bool,
    /// How often the step was called: the program that was called most of those that are one.
    step_calls: u64,
    /// How many programs have begun a phase.
    phases: usize,
    finished: Option<FinishedStep>,
}

/// The last step that was asked for.
#[derive(Clone, Debug)]
struct FinishedStep {
    program: u32,
    name: String,
    calls: u64,
    needed_bytes: u64,
    backward: bool,
    /// The peak of each device before it.
    peaks_before: Vec<u64>,
    /// Whether another one has begun.
    is_over: bool,
}

/// What follows from an execution.
#[derive(Debug, Default)]
pub(crate) struct StepDecision {
    /// To be set in the origins of its outputs.
    pub(crate) lineage: u64,
    pub(crate) run_progress: RunProgress,
    /// To be written into the trace before it.
    pub(crate) notes: Vec<Note>,
    /// Whether it belongs to a step that was not asked for: it takes no memory, and is not recorded.
    pub(crate) is_beyond: bool,
}

/// Returned bytes that are fewer than this part of the unchanged ones are not the state of a training.
const MAX_UNCHANGED_TO_RETURNED_RATIO: u64 = 10_000;
/// Phases that are noted; a program that compiles something in each step has no more to tell.
const MAX_PHASES: usize = 1000;

impl StepDetector {
    /// Considers an execution, with the memory of the run so far.
    fn on_execution(
        &mut self,
        execution: &Execution<'_>,
        options: &StepOptions<'_>,
        memory: &impl RunMemory,
    ) -> StepDecision {
        let mut notes = Vec::new();
        if !std::mem::replace(&mut self.is_search_noted, true) {
            notes
                .push(Note::Search { steps: options.limit, name: options.name.map(str::to_owned) });
        }
        let known_before = self.programs.len();
        let history = match self.programs.entry(execution.program) {
            Entry::Occupied(old) => old.into_mut(),
            Entry::Vacant(new) => {
                let mut history = ProgramHistory::default();
                if execution.backward {
                    // More than 64 programs share bits, which can only mistake one's results for another's.
                    history.lineage_bit = 1 << (self.with_backward % 64);
                    self.with_backward += 1;
                }
                new.insert(history)
            }
        };
        let lineages = execution.arguments.iter().map(|one| one.origin.lineage);
        let lineage = lineages.fold(history.lineage_bit, |all, one| all | one);
        let named = options.name.map(|name| is_program_named(execution.name, name));
        let is_first = history.calls == 0;
        let is_steady = !is_first && history.known_programs == known_before;
        history.calls += 1;
        if !is_steady {
            history.first_steady_call = history.calls;
        }

        let flow = history.state_flow(execution);
        let returned = match named {
            Some(_) => false,
            None if execution.backward => {
                flow.returned_bytes > 0
                    && flow.returned_bytes >= flow.unchanged_bytes / MAX_UNCHANGED_TO_RETURNED_RATIO
            }
            None if self.with_backward > 0 || flow.returned_bytes == 0 => false,
            None => flow.covers_live_memory(execution, history.calls, memory.in_use_bytes()),
        };
        if returned && flow.unchanged_same_size_bytes <= flow.returned_bytes / 2 {
            history.returned_calls += 1;
        } else if returned {
            history.mixed_calls += 1;
        }
        let is_evidence = match named {
            Some(named) => named,
            None => returned && (execution.backward || history.has_enough_calls(0, execution)),
        };
        if is_first && self.step_calls > 0 && self.phases < MAX_PHASES {
            self.phases += 1;
            notes.push(Note::Phase {
                program: execution.program,
                step_calls: self.step_calls,
                peak_bytes: memory.peaks().into_iter().max().unwrap_or(0),
            });
        }
        if is_evidence {
            self.step_calls = self.step_calls.max(history.calls);
        }
        if (is_first && execution.backward) || (is_evidence && !history.is_noted) {
            history.is_noted = is_evidence;
            notes.push(Note::Program {
                program: execution.program,
                backward: execution.backward,
                named: named == Some(true),
                returned_bytes: if returned { flow.returned_bytes } else { 0 },
            });
        }
        history.last_arguments.clear();
        let ids = execution.arguments.iter().map(|one| one.origin.id);
        history.last_arguments.extend(ids);
        let is_step = match named {
            Some(named) => named,
            None => is_steady && returned,
        };
        let is_finished = options
            .limit
            .is_some_and(|limit| is_step && history.has_reached(limit, named.is_some(), execution));
        let calls = history.calls;
        let known = self.programs.len();
        if let Some(history) = self.programs.get_mut(&execution.program) {
            history.known_programs = known;
        }

        let mut is_beyond = false;
        let run_progress = match &mut self.finished {
            Some(step) if named == Some(true) || step.is_next(execution, is_first) => {
                is_beyond = true;
                match std::mem::replace(&mut step.is_over, true) {
                    true => RunProgress::Extra,
                    false => {
                        notes.push(step.stopped_note(&memory.peaks()));
                        RunProgress::Over
                    }
                }
            }
            // Smaller programs may belong to an evaluation, or to saving a checkpoint.
            Some(step) if execution.needed_bytes < step.needed_bytes => RunProgress::Continue,
            Some(step) if step.backward && !execution.backward => RunProgress::Continue,
            Some(step) if !step.is_over => RunProgress::Continue,
            Some(_) => RunProgress::Extra,
            None if is_finished => {
                self.finished = Some(FinishedStep {
                    program: execution.program,
                    name: execution.name.to_owned(),
                    calls,
                    needed_bytes: execution.needed_bytes,
                    backward: execution.backward,
                    peaks_before: memory.peaks(),
                    is_over: false,
                });
                RunProgress::Finished
            }
            None => RunProgress::Continue,
        };
        StepDecision { lineage, run_progress, notes, is_beyond }
    }
}

/// What the run holds on its devices.
pub(crate) trait RunMemory {
    /// Returns what is in use on the first device of the execution, which takes some time.
    fn in_use_bytes(&self) -> u64;
    /// Returns the peak of each device so far.
    fn peaks(&self) -> Vec<u64>;
}

impl FinishedStep {
    /// Returns `true` if an execution is a step like this one: of the same program, or of the same function
    /// compiled for another batch. All lambdas have one name, so what ran before beside the step is another.
    fn is_next(&self, execution: &Execution<'_>, is_first: bool) -> bool {
        let is_recompiled = is_first && execution.name == self.name;
        let has_backward = self.backward && execution.backward;
        execution.program == self.program || is_recompiled && has_backward
    }

    /// Returns the note that the run was ended, with how the peak grew in this step.
    fn stopped_note(&self, peaks: &[u64]) -> Note {
        let pairs = self.peaks_before.iter().zip(peaks);
        let grown = pairs.filter(|(before, after)| after > before);
        let most = grown.max_by_key(|(before, after)| *after - *before);
        let (previous_peak_bytes, peak_bytes) =
            most.map_or((0, 0), |(before, after)| (*before, *after));
        Note::Stopped { program: self.program, calls: self.calls, previous_peak_bytes, peak_bytes }
    }
}

static DETECTOR: Mutex<Option<StepDetector>> = Mutex::new(None);

/// Considers an execution before it is executed.
pub(crate) fn on_execution(
    execution: &Execution<'_>,
    options: &StepOptions<'_>,
    memory: &impl RunMemory,
) -> StepDecision {
    lock(&DETECTOR).get_or_insert_default().on_execution(execution, options, memory)
}

/// Retracts that the run is finished: the last step ran out of memory, and the program may continue.
pub(crate) fn retract_finish() {
    lock(&DETECTOR).get_or_insert_default().finished = None;
}

/// When the last step is over, asks Python to end the run, and reports to it each extra step that the
/// main thread executes. Not to be called while the machine is locked: it waits for the GIL.
pub(crate) fn after_execution(run_progress: RunProgress) {
    match (run_progress, hooks::get()) {
        (RunProgress::Over, Some(hooks)) => hooks.request_exit(),
        (RunProgress::Extra, Some(hooks)) if shutdown::is_main_thread() => hooks.extra_step(),
        (RunProgress::Extra, _) => shutdown::throttle_extra_step(),
        _ => {}
    }
}

#[cfg(test)]
#[path = "step_detector_tests.rs"]
mod tests;
