//! What happened in a run, in order: the log that every report, replay and comparison reads.
//!
//! [`Writer`] and [`Reader`] keep it in a compact file (`docs/reference/trace-format.md`) in which repeated
//! steps cost nothing. The vocabulary is [`Header`], [`Event`] and [`Footer`]. [`Replay`] lets the
//! events happen again in allocators, the same or others, and [`summarise`] makes an [`RunSummary`] of
//! them. [`compare`] tells what other settings would have made of the run, [`difference`] what makes one
//! run need more than another.
//!
//! | file | what it is |
//! | --- | --- |
//! | `event.rs`, `stream.rs` | the vocabulary, and where events come from |
//! | `writer.rs`, `reader.rs`, `source.rs`, `wire.rs`, `history.rs` | the file |
//! | `text.rs` | lists of requests as plain text |
//! | `replay.rs`, `pool.rs`, `recorded_device.rs`, `options.rs` | allocators that the events drive |
//! | `analyzer.rs`, `device.rs`, `programs.rs`, `failure.rs` | what is counted while they do |
//! | `period/` | repeats that come back to the same state are skipped |
//! | `running_minimum.rs`, `snapshot.rs`, `timeline.rs` | a run's past in bounded memory |
//! | `arrays.rs`, `leaks.rs`, `layout.rs`, `compilations.rs` | who made what, what grows, what lies where |
//! | `critical_point.rs`, `attribution.rs` | whose the bytes are at the moment that decides |
//! | `callbacks.rs`, `not_computed.rs` | Python functions that programs call; values that took too long to compute |
//! | `scratch.rs` | what library routines take beside the plans, at most |
//! | `autotune_range.rs`, `compare.rs` | the same run with other kernels, under other settings |
//! | `total_range.rs` | a refused request at the highest total that drivers report, or without other processes |
//! | `others.rs` | what other processes hold of the GPUs |
//! | `difference.rs` | what makes one run need more than another |
//! | `answer.rs`, `course.rs`, `summary.rs` | what it comes to |
//! | `step.rs` | which program is the training step |
//! | `verdict.rs`, `note.rs` | whether it fits and on which conditions, what else was learnt |

mod analyzer;
mod answer;
mod arrays;
mod attribution;
mod autotune_range;
mod callbacks;
mod compare;
mod compilations;
mod course;
mod critical_point;
mod device;
mod difference;
mod environment;
mod event;
mod failure;
mod history;
mod layout;
mod leaks;
mod not_computed;
mod note;
mod options;
mod others;
mod part;
mod period;
mod pool;
mod programs;
mod reader;
mod recorded_device;
mod replay;
mod running_minimum;
mod scratch;
mod snapshot;
mod source;
mod step;
mod stream;
mod summary;
mod text;
mod timeline;
mod total_range;
mod verdict;
mod warnings;
mod wire;
mod writer;

pub use answer::{
    AbortInfo, AllocationFailure, AutotuneRange, DeviceSummary, MAX_REFUSALS_KEPT, PeakContext,
    PoolState, ProcessDevice, ProcessSummary, ProgramExit, ProgramMemorySummary, ProgramSummary,
    RunSummary, UnknownReads,
};
pub use attribution::Attribution;
pub use callbacks::CallbackSummary;
pub use compare::{Comparison, Settings, compare};
pub use course::{
    ArraySummary, CompilationSummary, LayoutSummary, LeakSummary, PieceSummary, RegionSummary,
    TimelinePoint,
};
pub use difference::{Change, Contrast, Difference, Group, Need, OwnerChange, Run, difference};
pub use environment::RunEnvironment;
pub use event::{CallbackSkip, Event, Footer, Header, ProgramSizes, Purpose, Sharing, TextId};
pub use not_computed::NotComputed;
pub use note::{Note, OtherProcess, is_program_named};
pub use others::{NoContextSummary, OtherProcessesSummary};
pub use part::{EntryKind, Part};
pub use programs::Evidence;
pub use reader::{Reader, TraceEnd};
pub use replay::{Block, Divergence, Replay, StepEffect};
pub use scratch::{ScratchNeedSummary, ScratchShortage, ScratchSummary};
pub use step::{Cut, StepSearch};
pub use stream::{Events, Repetition};
pub use summary::{summarise, summarise_events, summarise_until};
pub use text::TextTrace;
pub use total_range::{TotalRangeSummary, is_met_alone, replay_at_max_total};
pub use verdict::{Condition, LastExecution, Plan, UncaughtError, Verdict};
pub use warnings::CompilerWarning;
pub use writer::{Writer, end_with_note};
