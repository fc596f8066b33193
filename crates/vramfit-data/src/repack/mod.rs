//! Rewrites a file so that it streams well: the same content, in chunks of whole rows that
//! are large enough for a disk and small enough for a shuffle.
//!
//! Elements are copied byte by byte, whatever their type. The new file is read back and verified before
//! it is published under its name. What cannot be copied is listed.

mod copy;
mod copy_pass;
mod layout;
mod manifest;
mod plan;
mod select;
mod value;

use serde::Serialize;
use vramfit_core::Bytes;

pub use copy::{Phase, Progress, repack};
pub use plan::{RepackPlan, Step, StorageInfo, plan};

use crate::write::Compression;

/// How to rewrite a file.
#[derive(Clone, Debug)]
pub struct RepackOptions {
    /// Only these datasets or groups; everything if empty.
    pub datasets: Vec<String>,
    /// Chunk size.
    pub chunk: Chunk,
    /// Compression; that of each dataset if not set.
    pub compression: Option<Compression>,
    /// The byte-shuffle filter.
    pub shuffle: Shuffle,
    /// Memory budget for copying rows.
    pub memory: Bytes,
    /// Threads that decode and compress.
    pub threads: usize,
}

/// The chunk size of the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A size that streams well; no chunks without compression.
    Default,
    /// A number of rows.
    Rows(u64),
    /// The largest power of two of rows that fits in this size.
    Bytes(Bytes),
}

/// When to apply the byte-shuffle filter before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// For elements of more than one byte.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// Something that is not in the new file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omission {
    /// The object it belongs to.
    pub path: String,
    /// What it is.
    pub what: String,
    /// Why it cannot be copied.
    pub reason: String,
}

/// How the new file is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOptions {
    /// Replace an existing file.
    pub force: bool,
    /// The new file replaces the old one, with the same permissions.
    pub in_place: bool,
}
