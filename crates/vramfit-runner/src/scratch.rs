//! Temporary folders of a command. One that a killed process left behind is removed by a later command.
//!
//! A folder in use is locked, which the system undoes with the process. A process number would not do:
//! containers may share a folder for temporary files and count their processes apart.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use vramfit_base::{Error, Result};

/// Not shared with the folders of the plugin, which the program holds without a lock.
const PREFIX: &str = "vramfit-command-";
/// A folder that is younger may not be locked yet by the process that has just made it.
const MIN_STALE_AGE: Duration = Duration::from_secs(60);

/// A temporary folder, gone when it is dropped.
pub struct TempDirectory {
    // Dropped first: a process that finds the folder unlocked removes it, as is about to happen.
    _lock: File,
    folder: TempDir,
}

impl TempDirectory {
    /// Makes a folder, after removing those that nobody uses any more.
    ///
    /// # Errors
    /// `io`.
    pub fn create() -> Result<TempDirectory> {
        TempDirectory::create_in_temp().map_err(|error| {
            Error::io("cannot create a temporary directory")
                .cause(error)
                .hint("set `TMPDIR` to a directory that is writable")
        })
    }

    fn create_in_temp() -> io::Result<TempDirectory> {
        let parent = std::env::temp_dir();
        remove_stale(&parent, MIN_STALE_AGE);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        // A file system without locks is one on which nothing is removed.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        Ok(TempDirectory { _lock: lock, folder })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of this user's that are old enough and locked by nobody. What cannot be removed stays.
fn remove_stale(parent: &Path, min_age: Duration) {
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let path = entry.path();
        if is_stale(&path, user, min_age) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

fn is_stale(path: &Path, user: u32, min_age: Duration) -> bool {
    use std::os::unix::fs::MetadataExt;
    // Of a link it is the link that counts: it leads to what is not ours.
    let Ok(metadata) = path.symlink_metadata() else {
        return false;
    };
    let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
    metadata.is_dir()
        && metadata.uid() == user
        && age.is_some_and(|age| age >= min_age)
        && File::open(path)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_nobody_locks_are_stale() {
        let parent = tempfile::tempdir().expect("a folder");
        let user = rustix::process::geteuid().as_raw();
        let path = parent.path().join("vramfit-command-of-a-killed-process");
        std::fs::create_dir(&path).expect("a folder");
        let lock = File::open(&path).expect("a folder");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("a lock");
        assert!(!is_stale(&path, user, Duration::ZERO));
        drop(lock);
        assert!(!is_stale(&path, user, MIN_STALE_AGE));
        assert!(!is_stale(&path, user + 1, Duration::ZERO));
        assert!(is_stale(&path, user, Duration::ZERO));
    }

    #[test]
    fn what_is_stale_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a folder");
        for name in ["vramfit-command-a", "vramfit-other"] {
            std::fs::create_dir(parent.path().join(name)).expect("a folder");
        }
        std::fs::write(parent.path().join("vramfit-command-a/run.trace"), "x").expect("a file");
        std::fs::write(parent.path().join("vramfit-command-file"), "x").expect("a file");
        std::os::unix::fs::symlink("vramfit-other", parent.path().join("vramfit-command-link"))
            .expect("a link");
        remove_stale(parent.path(), Duration::ZERO);
        let mut left: Vec<_> = std::fs::read_dir(parent.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["vramfit-command-file", "vramfit-command-link", "vramfit-other"]);
    }
}
