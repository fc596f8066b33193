//! The trace: everything that happened in a run, in order, in a compact file.
//!
//! [`Writer`] and [`Reader`] keep a [`Header`], [`Event`]s and a [`Footer`] in a file in which repeated steps cost
//! nothing; `docs/reference/trace-format.md` specifies it. What happens when the events are applied to allocators,
//! and what they add up to, is the subject of `vramfit-analysis`.
//!
//! | file | content |
//! | --- | --- |
//! | `header.rs`, `event.rs`, `note.rs` | header and footer, events, notes |
//! | `run_environment.rs`, `compiler_warning.rs`, `not_computed.rs` | other records |
//! | `event_source.rs` | the trait of everything that yields events |
//! | `writer.rs`, `reader.rs`, `records.rs` | the file |
//! | `history.rs`, `sequence_index.rs` | how repeats are folded and unfolded |
//! | `wire.rs`, `decoder.rs` | bytes: tags, integers, checksums |
//! | `request_list.rs` | lists of requests as plain text |

mod compiler_warning;
mod decoder;
mod event;
mod event_source;
mod header;
mod history;
mod not_computed;
mod note;
mod reader;
mod records;
mod request_list;
mod run_environment;
mod sequence_index;
mod wire;
mod writer;

pub use compiler_warning::CompilerWarning;
pub use event::{CallbackSkip, Event, MIN_UNREAD_BYTES, Purpose, TextId};
pub use event_source::EventSource;
pub use header::{Footer, Header};
pub use not_computed::NotComputed;
pub use note::{
    ArrayHolder, CpuProgram, Note, OtherProcess, PartitionedProgram, ProcessExit, UncaughtError,
    is_program_named,
};
pub use reader::{Reader, TraceEnd};
pub use records::end_with_note;
pub use request_list::RequestList;
pub use run_environment::RunEnvironment;
pub use writer::Writer;
