//! What a run came to: whether it fits, what it needed and when, what the bytes belong to.
//!
//! [`summarize`] replays a trace through the same allocators and makes a [`RunSummary`] of it; [`compare`] does the
//! same under other settings beside it.
//!
//! | file | content |
//! | --- | --- |
//! | `summary.rs`, `device_summary.rs`, `allocation_failure.rs`, `series.rs`, `verdict.rs`, `condition.rs` | the results |
//! | `analyzer/` | adds up the events of a replay, and makes the results of it |
//! | `comparison.rs` | the same under other settings |
//! | `load.rs` | the trace files of a run, and the process that decides |
//! | `devices.rs`, `programs/`, `failure.rs` | what is added up for devices, programs, failures |
//! | `running_minimum.rs`, `snapshot.rs`, `timeline/` | a run's past in bounded memory |
//! | `arrays.rs`, `layout.rs` | arrays by allocation site, addresses |
//! | `critical_point.rs`, `attribution.rs`, `attribution_entry.rs`, `program_slots.rs` | memory attribution at the peak or the first refused request |
//! | `planned.rs` | the same of a program that was compiled and not executed |
//! | `cause.rs` | what takes most of the memory then, and the peak without it |
//! | `facts/` | what else a run shows: a file for each fact |
//! | `measured_edit.rs` | what a dry run with an edit of the program came to |
//! | `scratch.rs` | scratch memory of library routines |
//! | `hosts/` | the hosts of a program that runs on many together |
//! | `other_processes.rs` | what other processes hold of the GPUs |
//! | `partitions.rs` | what several devices have copies of, and which exchange data |
//! | `step_search.rs` | which program is the training step |

mod allocation_failure;
mod analyzer;
mod arrays;
mod attribution;
mod attribution_entry;
mod cause;
mod comparison;
mod condition;
mod cpu_programs;
mod critical_point;
mod device_summary;
mod devices;
pub mod facts;
mod failure;
pub mod hosts;
mod layout;
mod load;
mod measured_edit;
mod other_processes;
mod partitions;
mod planned;
mod program_slots;
mod programs;
mod recorded_run;
mod roles;
mod running_minimum;
mod scratch;
mod series;
mod snapshot;
mod step_search;
mod summary;
mod timeline;
mod verdict;

pub use allocation_failure::{AllocationFailure, MAX_FAILURES_KEPT};
pub use analyzer::{summarize, summarize_events, summarize_until};
pub use attribution::Attribution;
pub use attribution_entry::{AttributionEntry, EntryKind, largest_line};
pub use cause::{Cause, CauseGroup, NextPeak, ValueSize};
pub use comparison::{Comparison, ReplayOverrides, compare};
pub use condition::{Bearing, Condition, LastExecution, LinkTraffic, ProgramNeed};
pub use device_summary::{DeviceSummary, ProcessDevice, ProcessSummary, RequestContext};
pub use facts::RunFacts;
pub use facts::autotune_range::AutotuneRange;
pub use facts::compilations::CompilationSummary;
pub use facts::leaks::{CreatedArrays, LeakSummary};
pub use facts::replicated_arrays::ReplicatedArrays;
pub use facts::undivided_batch::UndividedBatch;
pub use facts::unread_outputs::UnreadOutput;
pub use facts::whole_batch::WholeBatch;
pub use hosts::{HostSummary, HostsSummary, ProgramMismatch};
pub use load::{
    WrapEvents, add_process_exit, load_process, load_summary, load_summary_until, most_critical,
    trace_files,
};
pub use measured_edit::MeasuredEdit;
pub use other_processes::{NoContextSummary, OtherProcessesSummary};
pub use partitions::ReplicatedArgument;
pub use programs::Evidence;
pub use scratch::{ScratchNeedSummary, ScratchShortage, ScratchSummary};
pub use series::{ArraySummary, LayoutSummary, PieceSummary, RegionSummary, TimelinePoint};
pub use step_search::{PeakGrowth, Phase, StepSearch, StepStop};
pub use summary::{AbortInfo, ProgramMemorySummary, ProgramSummary, RunSummary};
pub use verdict::Verdict;
