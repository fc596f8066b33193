//! What happened in a run, in order: the log that every report, replay and comparison reads.
//!
//! [`Writer`] and [`Reader`] keep it in a compact file (`docs/trace-format.md`) in which repeated
//! steps cost nothing. The vocabulary is [`Header`], [`Event`] and [`Footer`]. [`Replay`] lets the
//! events happen again in allocators, the same or others, and [`summarise`] makes an [`Answer`] of
//! them. [`compare`] tells what other settings would have made of the run, [`difference`] what makes one
//! run need more than another.
//!
//! | file | what it is |
//! | --- | --- |
//! | `event.rs`, `stream.rs` | the vocabulary, and where events come from |
//! | `writer.rs`, `reader.rs`, `source.rs`, `wire.rs`, `history.rs` | the file |
//! | `text.rs` | lists of requests as plain text |
//! | `replay.rs`, `pool.rs`, `recorded_card.rs`, `options.rs` | allocators that the events drive |
//! | `count.rs`, `device.rs`, `programs.rs`, `failure.rs` | what is counted while they do |
//! | `period/` | repeats that come back to the same state are skipped |
//! | `low_water.rs`, `kept.rs`, `timeline.rs` | a run's past in bounded memory |
//! | `arrays.rs`, `leaks.rs`, `layout.rs`, `compilations.rs` | who made what, what grows, what lies where |
//! | `deciding.rs`, `attribution.rs` | whose the bytes are at the moment that decides |
//! | `callbacks.rs`, `not_computed.rs` | Python functions that programs call; values that took too long to compute |
//! | `scratch.rs` | what library routines take beside the plans, at most |
//! | `autotune_range.rs`, `compare.rs` | the same run with other kernels, under other settings |
//! | `total_range.rs` | a refused request at the highest total that drivers report, or without other processes |
//! | `others.rs` | what other processes hold of the GPUs |
//! | `difference.rs` | what makes one run need more than another |
//! | `answer.rs`, `course.rs`, `summary.rs` | what it comes to |
//! | `step.rs` | which program is the training step |
//! | `verdict.rs`, `note.rs` | whether it fits and on which conditions, what else was learnt |

mod answer;
mod arrays;
mod attribution;
mod autotune_range;
mod callbacks;
mod compare;
mod compilations;
mod count;
mod course;
mod deciding;
mod device;
mod difference;
mod environment;
mod event;
mod failure;
mod history;
mod kept;
mod layout;
mod leaks;
mod low_water;
mod not_computed;
mod note;
mod options;
mod others;
mod part;
mod period;
mod pool;
mod programs;
mod reader;
mod recorded_card;
mod replay;
mod scratch;
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
    AbortAnswer, Answer, AutotuneRange, DeviceAnswer, MAX_REFUSALS_KEPT, Moment, PoolState,
    ProcessAnswer, ProcessDevice, ProgramAnswer, ProgramExit, ProgramMemoryAnswer, RefusalAnswer,
    UnknownReads,
};
pub use attribution::Attribution;
pub use callbacks::CallbackAnswer;
pub use compare::{Comparison, Settings, compare};
pub use course::{
    ArrayAnswer, CompilationAnswer, LayoutAnswer, LeakAnswer, PieceAnswer, RegionAnswer,
    TimelinePoint,
};
pub use difference::{Change, Contrast, Difference, Group, Need, OwnerChange, Run, difference};
pub use environment::RunEnvironment;
pub use event::{CallbackSkip, Event, Footer, Header, ProgramSizes, Purpose, Sharing, TextId};
pub use not_computed::NotComputed;
pub use note::{Note, OtherProcess, is_program_named};
pub use others::{NoContextAnswer, OthersAnswer};
pub use part::{Part, PartKind};
pub use programs::Evidence;
pub use reader::{Reader, TraceEnd};
pub use replay::{Block, Effect, Parting, Replay};
pub use scratch::{ScratchAnswer, ScratchNeedAnswer, ScratchShortage};
pub use step::{Cut, StepSearch};
pub use stream::{Events, Repetition};
pub use summary::{summarise, summarise_events, summarise_until};
pub use text::TextTrace;
pub use total_range::{TotalRangeAnswer, is_met_alone, replay_at_max_total};
pub use verdict::{Condition, LastExecution, Plan, UncaughtError, Verdict};
pub use warnings::CompilerWarning;
pub use writer::{Writer, end_with_note};
