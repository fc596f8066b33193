//! What happened in a run, in order: the log that every report, replay and comparison reads.
//!
//! [`Writer`] and [`Reader`] keep it in a compact file (`docs/trace-format.md`) in which repeated
//! steps cost nothing. The vocabulary is [`Header`], [`Event`] and [`Footer`]. [`Replay`] lets the
//! events happen again in allocators, the same or others, and [`summarise`] makes an [`Answer`] of
//! them. [`compare`] tells what other settings would have made of the run.

mod answer;
mod arrays;
mod bracket;
mod compare;
mod compilations;
mod count;
mod course;
mod device;
mod event;
mod history;
mod holdings;
mod kept;
mod layout;
mod leaks;
mod low_water;
mod options;
mod part;
mod reader;
mod recorded_card;
mod replay;
mod source;
mod stream;
mod summary;
mod text;
mod timeline;
mod wire;
mod writer;

pub use answer::{
    AbortAnswer, Answer, BracketAnswer, DeviceAnswer, MAX_REFUSALS_KEPT, Moment, PoolState,
    ProgramAnswer, ProgramMemoryAnswer, RefusalAnswer, UnknownReads,
};
pub use compare::{Comparison, Settings, compare};
pub use course::{
    ArrayAnswer, CompilationAnswer, LayoutAnswer, LeakAnswer, PieceAnswer, RegionAnswer,
    TimelinePoint,
};
pub use event::{Event, Footer, Header, ProgramSizes, Purpose, TextId};
pub use holdings::Holdings;
pub use part::{Part, PartKind};
pub use reader::Reader;
pub use replay::{Block, Effect, Parting, Replay};
pub use stream::Events;
pub use summary::summarise;
pub use text::TextTrace;
pub use writer::Writer;
