//! What happened in a run, in order: the log that every report, replay and comparison reads.

mod event;

pub use event::{Event, Footer, Header, ProgramSizes, Purpose, TextId};
