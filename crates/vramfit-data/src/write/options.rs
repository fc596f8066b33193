//! How a file is created, and the error where it cannot be written.

use std::path::Path;

use vramfit_base::{Bytes, Error};

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Replace the file if it exists, and what an earlier attempt left.
    pub force: bool,
    /// Go on with what an earlier attempt left, if it left anything.
    pub resume: bool,
    /// How many bytes are written between two points at which they are made safe, and from which a later
    /// attempt can resume.
    pub sync_every: Bytes,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { force: false, resume: false, sync_every: Bytes(64 << 20) }
    }
}

/// Returns the error for a file that cannot be written.
pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("cannot write `{}`", path.display())).cause(error)
}
