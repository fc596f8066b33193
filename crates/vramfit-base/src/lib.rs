//! What every crate needs, and nothing else.
//!
//! | module | subject |
//! | --- | --- |
//! | [`bytes`] | amounts of memory, read and shown |
//! | [`duration`] | durations on the command line |
//! | [`error`] | errors: kind, message, hint, cause |
//! | [`files`] | files that a user has named and that cannot be read |
//! | [`meminfo`] | what Linux says of the host's memory |
//! | [`nearest`] | the known name that an unknown one probably means |
//! | [`text`] | names that cannot disturb a terminal, and lines of limited width |

pub mod bytes;
pub mod duration;
pub mod error;
pub mod files;
pub mod meminfo;
pub mod nearest;
pub mod text;

pub use bytes::Bytes;
pub use error::{Error, ErrorKind, Result};

/// The schema of every JSON answer of the command line, the field `schema`. It rises when a field changes its meaning or
/// goes; fields may be added within a schema. Files that are read back, such as plans and traces, have versions of their own.
pub const JSON_SCHEMA: u32 = 2;
