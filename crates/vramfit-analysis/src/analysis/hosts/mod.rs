//! A program that runs on many hosts together, of which a dry run runs some, one after the other.
//!
//! XLA compiles one module for all devices of a program, so its memory is the same on each of them, and hosts
//! that take part in the same programs differ only by what their Python does. [`next_host`] says which host is
//! to be run next until each host was run or is represented by one that was;
//! [`summarize_hosts`] puts the runs together.
//!
//! | file | subject |
//! | --- | --- |
//! | `host_run.rs` | what one host executed together with others, from its trace |
//! | `grouping.rs` | which hosts stand for which |
//! | `mismatch.rs` | programs that one host executes and another does not |
//! | `summary.rs` | all hosts together |

/// The most hosts that a dry run may have.
pub const MAX_HOSTS: u32 = 4096;

mod grouping;
mod host_run;
mod mismatch;
mod summary;

pub use grouping::next_host;
pub use host_run::{GlobalProgram, HostRun, read_host_run};
pub use mismatch::ProgramMismatch;
pub use summary::{HostSummary, HostsSummary, summarize_hosts};
