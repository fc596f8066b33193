//! What tells whether a file is still the one that was opened.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vramfit_base::Result;

use super::read_metadata;

/// A file's identity at one moment. Two that are equal mean the same content, unless somebody wrote
/// to the file and then set its time back.
///
/// The device is no part of it: it changes when the same disk is mounted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileFingerprint {
    /// Length in bytes.
    pub length: u64,
    /// Time of the last change of content, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Number of the file in its file system.
    pub inode: u64,
}

impl FileFingerprint {
    /// Takes the fingerprint of the file that a path names now.
    ///
    /// # Errors
    ///
    /// `io` when it cannot be asked for.
    pub fn of(path: &Path) -> Result<FileFingerprint> {
        let metadata = read_metadata(path)?;
        Ok(FileFingerprint {
            length: metadata.len(),
            modified_ns: i128::from(metadata.mtime()) * 1_000_000_000
                + i128::from(metadata.mtime_nsec()),
            inode: metadata.ino(),
        })
    }
}

/// A file's identity from one run to the next: unlike a [`FileFingerprint`], another one after whatever was done to the
/// file, also where its time of change was set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    length: u64,
    modified_ns: i64,
    /// Time of the last change of content, name, owner or mode, which only the system sets.
    changed_ns: i64,
    inode: u64,
}

impl FileIdentity {
    /// Takes the identity of the file that a path names now.
    ///
    /// # Errors
    ///
    /// `io` when it cannot be asked for.
    pub fn of(path: &Path) -> Result<FileIdentity> {
        let metadata = read_metadata(path)?;
        let time = |seconds: i64, ns: i64| seconds.saturating_mul(1_000_000_000).saturating_add(ns);
        Ok(FileIdentity {
            length: metadata.len(),
            modified_ns: time(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: time(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        })
    }

    /// Whether a fingerprint is that of the same file.
    pub fn is_of(&self, print: &FileFingerprint) -> bool {
        (self.length, i128::from(self.modified_ns), self.inode)
            == (print.length, print.modified_ns, print.inode)
    }
}
