//! Which program is the training step: what the run found out, as its notes tell.

use serde::Serialize;

use super::other_processes::OtherProcesses;
use super::programs::{Evidence, Programs};
use crate::run_config::StepLimit;
use crate::trace::{Note, TextId};

/// The search for the training step of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepSearch {
    /// After which steps the run was to end; `None` where that was not asked for.
    pub steps: Option<StepLimit>,
    /// The name that was given to the step.
    pub name: Option<String>,
    /// Where the run was ended; `None` where it was not.
    pub stop: Option<StepStop>,
    /// What began while the training went on, in order: programs that were executed for the first time when the step was
    /// known already.
    pub phases: Vec<Phase>,
}

/// A part of a run that begins with programs that were not executed before, such as an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// How often the training step had been executed before.
    pub step_calls: u64,
    /// Name of the new program that needs most.
    pub program: String,
    /// How many other programs were new.
    pub other_programs: usize,
    /// Peak of the run before it, in bytes.
    pub previous_peak_bytes: u64,
    /// Peak of the run to the end of it.
    pub peak_bytes: u64,
}

impl Phase {
    /// Returns `true` if the peak of the run rose in it.
    pub fn raises_peak(&self) -> bool {
        self.peak_bytes > self.previous_peak_bytes
    }
}

/// Where a run was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepStop {
    /// Name of the program that was taken for the step.
    pub program: String,
    /// How often it was executed.
    pub calls: u64,
    /// The line that called it first, empty if not known.
    pub site: String,
    /// How the peak grew in the last step; `None` where it did not, or that was not noted.
    pub growth: Option<PeakGrowth>,
}

/// How a peak grew in the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeakGrowth {
    /// The peak before the step, on the device where it grew most.
    pub previous_peak_bytes: u64,
    /// The peak after it.
    pub peak_bytes: u64,
}

/// What the notes say of the step while events go by.
#[derive(Debug, Default)]
pub(super) struct StepNotes {
    /// How many notes were taken in.
    count: usize,
    steps: Option<StepLimit>,
    name: Option<String>,
    /// Programs that began phases.
    phases: Vec<PhaseStart>,
    /// Entry of the program, how often it was executed, and how the peak grew in the last step.
    stop: Option<(usize, u64, Option<PeakGrowth>)>,
}

#[derive(Debug)]
struct PhaseStart {
    entry: usize,
    step_calls: u64,
    peak_bytes: u64,
}

impl StepNotes {
    /// Records the notes that were read since the last time.
    pub(super) fn on_notes(
        &mut self,
        notes: &[Note],
        programs: &mut Programs,
        others: &mut OtherProcesses,
    ) {
        for note in notes.get(self.count..).unwrap_or_default() {
            match note {
                Note::Search { steps, name } => {
                    programs.has_step_search = true;
                    (self.steps, self.name) = (*steps, name.clone());
                }
                Note::Program { program, backward, named, returned_bytes } => {
                    let evidence = match (named, returned_bytes, backward) {
                        (true, _, _) => Evidence::Named,
                        (_, 1.., _) => Evidence::StateReturned,
                        (_, _, true) => Evidence::BackwardPass,
                        _ => continue,
                    };
                    programs.add_evidence(*program, evidence);
                }
                Note::Phase { program, step_calls, peak_bytes } => {
                    let entry = programs.entry_for(*program).ok();
                    self.phases.extend(entry.map(|entry| PhaseStart {
                        entry,
                        step_calls: *step_calls,
                        peak_bytes: *peak_bytes,
                    }));
                }
                Note::Stopped { program, calls, previous_peak_bytes, peak_bytes } => {
                    let entry = programs.entry_for(*program).ok();
                    let growth = (peak_bytes > previous_peak_bytes).then_some(PeakGrowth {
                        previous_peak_bytes: *previous_peak_bytes,
                        peak_bytes: *peak_bytes,
                    });
                    self.stop = entry.map(|entry| (entry, *calls, growth));
                }
                Note::Others { .. } | Note::NoContext { .. } => others.on_note(note),
                Note::PartitionedProgram(_)
                | Note::Error(_)
                | Note::Exit(_)
                | Note::CpuProgram(_)
                | Note::ReadAgain { .. }
                | Note::ReadAfterPeak { .. }
                | Note::ArrayHolders { .. } => {}
            }
        }
        self.count = notes.len();
    }

    /// Returns what is known of the search; `None` for a trace whose run did not search.
    pub(super) fn summary(
        &self,
        programs: &Programs,
        peak_bytes: u64,
        text: &impl Fn(TextId) -> String,
    ) -> Option<StepSearch> {
        programs.has_step_search.then(|| StepSearch {
            steps: self.steps,
            name: self.name.clone(),
            stop: self.stop.map(|(entry, calls, growth)| StepStop {
                program: text(programs.name(entry)),
                calls,
                site: text(programs.entries[entry].site),
                growth,
            }),
            phases: self.phases(programs, peak_bytes, text),
        })
    }

    /// Returns the phases; `peak_bytes` is the peak of the whole run.
    fn phases(
        &self,
        programs: &Programs,
        peak_bytes: u64,
        text: &impl Fn(TextId) -> String,
    ) -> Vec<Phase> {
        let together = self.phases.chunk_by(|a, b| a.step_calls == b.step_calls);
        let begins = together.clone().map(|begin| begin[0].peak_bytes);
        let ends = begins.skip(1).chain([peak_bytes]);
        let phases = together.zip(ends).map(|(begin, end)| {
            let needed = |entry: usize| programs.entries[entry].key.sizes.needed_bytes();
            let entries = begin.iter().map(|one| one.entry);
            let largest = entries.max_by_key(|entry| needed(*entry)).unwrap_or(0);
            Phase {
                step_calls: begin[0].step_calls,
                program: text(programs.name(largest)),
                other_programs: begin.len() - 1,
                previous_peak_bytes: begin[0].peak_bytes,
                peak_bytes: end,
            }
        });
        phases.collect()
    }
}
