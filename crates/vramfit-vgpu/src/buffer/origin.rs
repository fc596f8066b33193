//! Where the content of an array comes from, which distinguishes replaced state from unchanged state.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where the content of an array comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Different for each content, also where it replaces another in the same memory.
    pub(crate) id: u64,
    /// The program that returned it; `None` for uploads.
    pub(crate) producer: Option<u32>,
    /// The programs with a backward pass that it was computed by, one bit each.
    pub(crate) lineage: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Origin {
    /// Returns the origin of an upload.
    pub(crate) fn from_upload() -> Self {
        Origin { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), producer: None, lineage: 0 }
    }

    /// Returns the origin of a program's output.
    pub(crate) fn from_program(program: u32, lineage: u64) -> Self {
        Origin { producer: Some(program), lineage, ..Origin::from_upload() }
    }

    /// Returns the origin of a copy.
    pub(crate) fn of_copy(self) -> Self {
        Origin { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), ..self }
    }
}
