//! A dry run that has ended.

use vramfit_analysis::analysis::{RunSummary, add_process_exit, trace_files};
use vramfit_base::Error;

use super::program_run::{ProgramRun, crash_error, is_crash};
use crate::child::ExitReason;
use crate::messages::Messages;

/// A dry run that has ended, with what it came to. Its traces are there while it is, or for longer where they are kept.
pub struct FinishedRun {
    /// What it came to.
    pub summary: RunSummary,
    /// How the program ended; `None` for those of several hosts.
    pub exit: Option<ExitReason>,
    /// The program, or that of each host.
    pub(super) programs: Vec<ProgramRun>,
}

impl FinishedRun {
    /// Completes the traces that are kept, and says where they are.
    pub fn complete_traces(&self, messages: &dyn Messages) {
        for program in self.programs.iter().filter(|program| program.is_trace_kept) {
            for trace in trace_files(&program.trace) {
                // A trace that lacks the exit code takes nothing from the results.
                if let Err(error) = add_process_exit(&trace, program.exit.process_exit()) {
                    messages.info(&format!("warning: {error}"));
                }
            }
            messages.info(&format!("trace written to {}", program.trace.display()));
        }
    }

    /// Returns the error for a program that crashed before it was known whether it fits.
    pub fn crash(&self) -> Option<Error> {
        let Some(ExitReason::Signal(signal)) = self.exit else { return None };
        if self.summary.fits().is_some() || !is_crash(signal) {
            return None;
        }
        let programs = self.summary.programs.iter();
        let count = programs.map(|program| program.compilations).sum::<u64>();
        Some(crash_error(signal, Some(count)))
    }
}
