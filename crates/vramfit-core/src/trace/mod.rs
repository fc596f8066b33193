//! What happened in a run, in order: the log that every report, replay and comparison reads.
//!
//! [`Writer`] and [`Reader`] keep it in a compact file (`docs/trace-format.md`) in which repeated
//! steps cost nothing. The vocabulary is [`Header`], [`Event`] and [`Footer`].

mod event;
mod history;
mod reader;
mod wire;
mod writer;

pub use event::{Event, Footer, Header, ProgramSizes, Purpose, TextId};
pub use reader::Reader;
pub use writer::Writer;
