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
