//! What tells whether a file is still the one that was opened.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
