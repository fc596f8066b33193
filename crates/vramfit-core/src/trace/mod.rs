//! What happened in a run, in order: the log that every report, replay and comparison reads.
//!
//! [`Writer`] and [`Reader`] keep it in a compact file (`docs/trace-format.md`) in which repeated
//! steps cost nothing. The vocabulary is [`Header`], [`Event`] and [`Footer`]. [`Replay`] lets the
//! events happen again in the same allocators, and [`summarise`] makes an [`Answer`] of them.

mod answer;
mod bracket;
mod count;
mod event;
mod history;
mod low_water;
mod reader;
mod replay;
mod source;
mod summary;
mod wire;
mod writer;

pub use answer::{
    AbortAnswer, Answer, BracketAnswer, DeviceAnswer, MAX_REFUSALS_KEPT, Moment, PoolState,
    ProgramAnswer, ProgramExit, RefusalAnswer, UnknownReads,
};
pub use event::{Event, Footer, Header, ProgramSizes, Purpose, TextId};
pub use reader::Reader;
pub use replay::{Effect, Replay};
pub use summary::summarise;
pub use writer::Writer;
