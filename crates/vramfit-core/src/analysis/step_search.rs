//! Which program is the training step: what the run found out, as its notes tell.

use serde::Serialize;

use super::analyzer::TraceAnalyzer;
use super::programs::Evidence;
use crate::trace::{Note, TextId};

/// The search for the training step of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepSearch {
    /// After how many steps the run was to end; `None` where that was not asked for.
    pub steps: Option<u64>,
    /// The name that was given to the step.
    pub name: Option<String>,
    /// Where the run was ended; `None` where it was not.
    pub cut: Option<Cut>,
}

/// Where a run was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Name of the program that was taken for the step.
    pub program: String,
    /// How often it was executed.
    pub calls: u64,
    /// The line that called it first, empty if not known.
    pub site: String,
}

/// The same while events go by.
#[derive(Debug, Default)]
pub(super) struct Search {
    seen: usize,
    steps: Option<u64>,
    name: Option<String>,
    /// ProgramEntry of the program, and how often it was executed.
    cut: Option<(usize, u64)>,
}

impl Search {
    /// Returns how many notes were taken in.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }
}

impl TraceAnalyzer {
    /// Takes in the notes that were read since the last time. They stand before the events that they
    /// are about.
    pub(super) fn learn(&mut self, notes: &[Note]) {
        for note in notes.get(self.search.seen..).unwrap_or_default() {
            match note {
                Note::Search { steps, name } => {
                    self.programs.is_searched = true;
                    (self.search.steps, self.search.name) = (*steps, name.clone());
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
                    self.programs.note_evidence(*program, evidence);
                }
                Note::Cut { program, calls } => {
                    let entry = self.programs.entry_for(*program).ok();
                    self.search.cut = entry.map(|entry| (entry, *calls));
                }
                Note::Others { .. } | Note::NoContext { .. } => self.others.learn(note),
                Note::Error(_) | Note::Exit(_) => {}
            }
        }
        self.search.seen = notes.len();
    }

    /// Returns what is known of the search; `None` for a trace whose run did not search.
    pub(super) fn step_search(&self, text: &impl Fn(TextId) -> String) -> Option<StepSearch> {
        let search = &self.search;
        self.programs.is_searched.then(|| StepSearch {
            steps: search.steps,
            name: search.name.clone(),
            cut: search.cut.map(|(entry, calls)| Cut {
                program: text(self.programs.entries[entry].key.0),
                calls,
                site: text(self.programs.entries[entry].site),
            }),
        })
    }
}
