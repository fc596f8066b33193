//! Whether a run fits, and on which conditions that holds.
//!
//! The one place that decides: text, JSON, page, exit codes and other commands ask
//! [`Answer::verdict`]. How a condition is put into words is the business of [`crate::report`].

use serde::{Deserialize, Serialize};

use super::{Answer, ProgramExit};

/// Whether a run fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// `Some(false)` when a request for memory was refused or an allocator would have aborted,
    /// `Some(true)` when the run came to its end without that, `None` when it cannot be told.
    pub fits: Option<bool>,
    /// What the answer depends on, the condition that leaves it open first.
    pub conditions: Vec<Condition>,
}

/// Something that an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Condition {
    /// The program stopped by its own error, not for want of GPU memory.
    ProgramFailed {
        /// How its process ended; `None` where only the trace tells of the error.
        exit: Option<ProgramExit>,
        /// The exception that nothing in the program caught, where it was a Python one.
        error: Option<UncaughtError>,
        /// What was executed last; `None` when nothing was.
        after: Option<LastExecution>,
    },
    /// The trace ends before its process did: the process was killed, or still runs.
    TraceEndsEarly {
        /// What was executed last; `None` when nothing was.
        after: Option<LastExecution>,
    },
    /// The request that was refused is met on a GPU of the same kind whose driver reports a higher
    /// total. The lowest total decides.
    TotalRange {
        /// The total that decided.
        total_memory_bytes: u64,
        /// The highest that drivers report, with which the request is met.
        max_total_memory_bytes: u64,
    },
}

impl Condition {
    /// Says whether this condition alone makes it impossible to tell whether a run fits that was
    /// refused nothing.
    pub fn leaves_open(&self) -> bool {
        match self {
            Condition::ProgramFailed { .. } | Condition::TraceEndsEarly { .. } => true,
            // Something was refused where this is said.
            Condition::TotalRange { .. } => false,
        }
    }
}

/// An exception that ended a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UncaughtError {
    /// Its class, such as `ValueError`.
    pub name: String,
    /// Its message, cut to its first line.
    pub message: String,
    /// The line of the program that it came from, as `file:line (function)`; empty if not known.
    pub site: String,
}

/// The execution that was begun last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastExecution {
    /// Name of the program.
    pub program: String,
    /// Which execution of it, from 1.
    pub call: u64,
}

impl Answer {
    /// Says whether the run fits, and on which conditions.
    pub fn verdict(&self) -> Verdict {
        let mut conditions = Vec::new();
        conditions.extend(self.ended_early());
        conditions.extend(self.total_range.filter(|range| range.is_met).map(|range| {
            Condition::TotalRange {
                total_memory_bytes: self.header.total_memory_bytes,
                max_total_memory_bytes: range.max_total_memory_bytes,
            }
        }));
        // A stable sort: what leaves the answer open comes first.
        conditions.sort_by_key(|condition| !condition.leaves_open());
        let fits = match conditions.first() {
            _ if self.is_refused() => Some(false),
            Some(condition) if condition.leaves_open() => None,
            _ => Some(true),
        };
        Verdict { fits, conditions }
    }

    /// Returns [`Verdict::fits`].
    pub fn fits(&self) -> Option<bool> {
        self.verdict().fits
    }

    /// Says whether a request for memory was refused, or an allocator would have aborted: whether
    /// the run does not fit, however it ended.
    pub fn is_refused(&self) -> bool {
        self.refusal_count > 0 || self.abort.is_some()
    }

    /// How the run ended before its time, if it did. A process of a program that ended well may
    /// have been killed by it, as workers are; then the program saw the end of its work.
    fn ended_early(&self) -> Option<Condition> {
        let after = self.last_execution.clone();
        let failed = |exit| Condition::ProgramFailed {
            exit,
            error: self.uncaught_error.clone(),
            after: after.clone(),
        };
        match self.program_exit {
            Some(exit) if exit.is_success() => None,
            Some(exit) => Some(failed(Some(exit))),
            None if self.uncaught_error.is_some() => Some(failed(None)),
            None if !self.complete => Some(Condition::TraceEndsEarly { after }),
            None => None,
        }
    }
}

impl ProgramExit {
    /// Says whether the process ended by itself with exit code 0.
    pub fn is_success(self) -> bool {
        self.code == Some(0)
    }
}
