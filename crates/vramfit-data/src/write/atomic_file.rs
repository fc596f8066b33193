//! A file that is written under a hidden name and moved to its path when complete.
//!
//! At its path there is the old file or the new one, never a part.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags};
use rustix::io::Errno;
use vramfit_base::{Bytes, Error, Result};

use super::options::{WriteOptions, cannot_write};

/// A file that is not published yet.
#[derive(Debug)]
pub(super) struct AtomicFile {
    /// Where it will be.
    pub(super) target: PathBuf,
    /// The file itself.
    pub(super) file: File,
    /// Its temporary name.
    name: PathBuf,
    /// The journal that records the progress of an attempt.
    pub(super) journal: PathBuf,
    /// Whether it is left from an earlier attempt.
    pub(super) is_known: bool,
    options: WriteOptions,
}

impl AtomicFile {
    /// Makes the file, or opens what an earlier attempt left.
    ///
    /// # Errors
    /// `io` when the path exists, when another process is writing to it, or the disk fails.
    pub(super) fn open(path: &Path, options: WriteOptions) -> Result<Self> {
        let target = std::path::absolute(path).map_err(|error| cannot_write(path, &error))?;
        ensure_folder(&target)?;
        if target.exists() && !options.force {
            return Err(Error::io(format!(
                "`{}` exists and will not be overwritten",
                path.display()
            ))
            .hint("add `--force`, or name another file"));
        }
        let name = hidden(&target, "part");
        let is_known = name.exists();
        if is_known && !options.force && !options.resume {
            return Err(Error::io(format!(
                "an earlier attempt left an unfinished `{}`",
                path.display()
            ))
            .hint("add `--resume` to continue it, or `--force` to start over"));
        }
        let file = create_hidden(path, &name)?;
        Ok(AtomicFile {
            journal: hidden(&target, "journal"),
            target,
            file,
            name,
            is_known,
            options,
        })
    }

    /// Returns an error where the disk has less free space than the file needs.
    pub(super) fn check_space(&self, path: &Path, expected: Bytes) -> Result<()> {
        let Ok(disk) = rustix::fs::fstatvfs(&self.file) else {
            return Ok(());
        };
        let available = Bytes(disk.f_bavail * disk.f_frsize);
        let held = self.file.metadata().map_or(0, |data| data.blocks() * 512);
        let needed = Bytes(expected.0.saturating_sub(held));
        if needed <= available {
            return Ok(());
        }
        let error = Error::io(format!(
            "`{}` needs {needed} ({} bytes), but the disk has {available} ({} bytes) free",
            path.display(),
            needed.0,
            available.0
        ));
        Err(error.hint("use fewer samples, or a disk with more free space"))
    }

    /// Moves the file, which is synced, to its path.
    ///
    /// # Errors
    /// `io` when the path was created in the meantime, or the disk fails.
    pub(super) fn publish(&mut self) -> Result<()> {
        let moved = if self.options.force {
            std::fs::rename(&self.name, &self.target)
        } else {
            rename_to_free(&self.name, &self.target)
        };
        moved.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                let shown = self.target.display();
                let failure = Error::io(format!(
                    "`{shown}` was created in the meantime and will not be overwritten"
                ));
                failure.hint("move it away and add `--resume`")
            }
            _ => cannot_write(&self.target, &error),
        })?;
        // The name is on the disk when its directory is synced.
        let synced = self
            .target
            .parent()
            .map_or(Ok(()), |parent| File::open(parent).and_then(|folder| folder.sync_all()));
        let done = synced.and_then(|()| std::fs::remove_file(&self.journal));
        done.map_err(|error| cannot_write(&self.target, &error))
    }

    /// Removes the unfinished file and its journal.
    pub(super) fn discard(&self) {
        // A file that cannot be removed is found and reported by the next attempt.
        let _ = std::fs::remove_file(&self.name);
        let _ = std::fs::remove_file(&self.journal);
    }

    /// Returns the error of a failed write, with a hint where the disk is full.
    pub(super) fn failed(&self, error: &std::io::Error) -> Error {
        let failure = cannot_write(&self.target, error);
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                failure.hint("free disk space and add `--resume`; the data written so far is kept")
            }
            _ => failure,
        }
    }
}

/// Opens a file by its hidden name, for this process alone.
fn create_hidden(path: &Path, name: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(name).map_err(|error| cannot_write(path, &error))?;
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    // A process that finished in between has moved the file that was opened here.
    let moved = || {
        let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
        let is = file.metadata().map(identity).ok();
        is.is_none() || is != std::fs::metadata(name).map(identity).ok()
    };
    if locked.is_err() || moved() {
        return Err(Error::io(format!("another process is writing `{}`", path.display())));
    }
    Ok(file)
}

/// Renames a file unless the new name exists.
fn rename_to_free(name: &Path, target: &Path) -> std::io::Result<()> {
    match rustix::fs::renameat_with(CWD, name, CWD, target, RenameFlags::NOREPLACE) {
        // Some network file systems do not know the flag.
        Err(Errno::INVAL | Errno::NOSYS) if !target.exists() => std::fs::rename(name, target),
        other => Ok(other?),
    }
}

/// Returns an error unless a file can be made at a path.
fn ensure_folder(target: &Path) -> Result<()> {
    let refuse = |why: &str| Error::io(format!("cannot write `{}`: {why}", target.display()));
    if target.file_name().is_none() || target.is_dir() {
        return Err(refuse("it is a directory"));
    }
    let folder = target.parent().unwrap_or(target);
    if !folder.is_dir() {
        return Err(refuse("its directory does not exist")
            .hint(format!("create it first: `mkdir -p {}`", folder.display())));
    }
    Ok(())
}

/// Returns a hidden name in the directory of the target.
fn hidden(target: &Path, ending: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    target.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_by_one_process_and_replaces_another_only_if_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.h5");
        let open = |force| {
            let file = AtomicFile::open(&target, WriteOptions { force, ..WriteOptions::default() });
            std::fs::write(hidden(&target, "journal"), "").unwrap();
            file
        };
        let mut output = open(false).unwrap();
        let error = create_hidden(&target, &hidden(&target, "part")).unwrap_err();
        assert!(error.message().starts_with("another process is writing"));
        std::io::Write::write_all(&mut &output.file, b"new").unwrap();
        std::fs::write(&target, "old").unwrap();
        let error = output.publish().unwrap_err();
        assert!(error.message().contains("was created in the meantime"), "{error}");
        drop(output);
        assert!(open(false).is_err());
        open(true).unwrap().publish().unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
