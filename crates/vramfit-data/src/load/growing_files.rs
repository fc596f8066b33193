//! Files to which a program appends while they are read (SWMR).
//!
//! Such a program leaves in place what a reader may know: chunks that grow are written anew, elsewhere. So rows that were there when
//! the file was opened can be read until it is closed, and the file as it is then must stay as it is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::inspect;
use crate::source::FileFingerprint;

/// The files, by their numbers, and what they were like once they were closed.
#[derive(Debug, Default)]
pub(super) struct GrowingFiles(Mutex<HashMap<u32, Option<FileFingerprint>>>);

impl GrowingFiles {
    /// Adds a file to which a program appends.
    pub(super) fn add(&mut self, file: u32) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).insert(file, None);
    }

    /// Whether a program appends to a file.
    pub(super) fn has(&self, file: u32) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&file)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether a file that is not as it was has only been appended to, and closed.
    pub(super) fn has_only_grown(
        &self,
        file: u32,
        path: &Path,
        was: &FileFingerprint,
        now: &FileFingerprint,
    ) -> bool {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(closed) = files.get_mut(&file) else {
            return false;
        };
        if let Some(closed) = closed {
            return closed == now;
        }
        if now.inode != was.inode || now.length < was.length {
            return false;
        }
        // Another program that has it open for writing is an error here.
        let Ok(container) = inspect::open_unclosed(path, false) else {
            return false;
        };
        if !container.is_swmr() {
            *closed = FileFingerprint::of(path).ok();
        }
        container.is_swmr() || closed.is_some() && container.unclosed().is_none()
    }
}
