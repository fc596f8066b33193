//! Makes of a file that streams badly one that streams well: the same content, in pieces of whole rows that
//! are large enough for a disk and small enough for a shuffle.
//!
//! Elements are copied byte by byte, whatever they are. The new file is read back and compared before
//! anybody sees it, and appears under its name at once. What cannot be copied is named.

mod copy;
mod layout;
mod pass;
mod picture;
mod plan;
mod select;
mod value;

use std::path::Path;

use serde::Serialize;
use vramfit_core::{Bytes, Result};

pub use copy::{Phase, Progress};
pub use plan::{Plan, Step, StorageFacts, plan};

use crate::write::Compression;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// Only these datasets or groups; everything where there are none.
    pub datasets: Vec<String>,
    /// How large chunks are.
    pub chunk: Chunk,
    /// How they are compressed; as they are unless told.
    pub compression: Option<Compression>,
    /// Whether bytes of equal weight are put together before.
    pub shuffle: Shuffle,
    /// The memory that rows may take while they are copied.
    pub memory: Bytes,
    /// Threads that decode and compress.
    pub threads: usize,
}

/// How large the chunks of the new file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// As large as streams well; and none where nothing is compressed.
    Usual,
    /// So many rows.
    Rows(u64),
    /// As many rows as fit into this, a power of two.
    Bytes(Bytes),
}

/// Whether bytes of equal weight are put together before they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// Where elements have more than one byte.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// Something that is not in the new file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The object that it belongs to.
    pub path: String,
    /// What it is.
    pub what: String,
    /// Why it cannot be copied.
    pub why: String,
}

/// How the new file comes to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOptions {
    /// Replace a file of that name.
    pub force: bool,
    /// The new file takes the place of the old one, and is read by the same people.
    pub in_place: bool,
}

/// Writes the new file as planned, compares it with the old one, and puts it in its place. Returns its size.
///
/// # Errors
/// `io` when the file exists or the disk refuses; `file-changed` when the old file was changed meanwhile;
/// `internal` when the new file does not hold what the old one does, which takes a bug or a bad disk.
pub fn repack(
    plan: &Plan,
    target: &Path,
    options: OutputOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Bytes> {
    copy::copy(plan, target, options, progress)
}
