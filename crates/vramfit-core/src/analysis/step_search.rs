//! Which program is the training step: what the run found out, as its notes tell.

use serde::Serialize;

use super::other_processes::OtherProcesses;
use super::programs::{Evidence, Programs};
use crate::trace::{Note, TextId};

/// The search for the training step of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepSearch {
    /// After how many steps the run was to end; `None` where that was not asked for.
    pub steps: Option<u64>,
    /// The name that was given to the step.
    pub name: Option<String>,
    /// Where the run was ended; `None` where it was not.
    pub stop: Option<StepStop>,
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
    steps: Option<u64>,
    name: Option<String>,
    /// Entry of the program, how often it was executed, and how the peak grew in the last step.
    stop: Option<(usize, u64, Option<PeakGrowth>)>,
}

impl StepNotes {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes in the notes that were read since the last time.
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
                Note::Program {
                    program,
                    backward,
                    named,
                    returned_bytes,
                } => {
                    let evidence = match (named, returned_bytes, backward) {
                        (true, _, _) => Evidence::Named,
                        (_, 1.., _) => Evidence::StateReturned,
                        (_, _, true) => Evidence::BackwardPass,
                        _ => continue,
                    };
                    programs.add_evidence(*program, evidence);
                }
                Note::Stopped {
                    program,
                    calls,
                    previous_peak_bytes,
                    peak_bytes,
                } => {
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
                | Note::ReadAgain { .. } => {}
            }
        }
        self.count = notes.len();
    }

    /// Returns what is known of the search; `None` for a trace whose run did not search.
    pub(super) fn summary(
        &self,
        programs: &Programs,
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
        })
    }
}
