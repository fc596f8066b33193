//! A file that is written under a hidden name, or without a name, and moved to its path when complete.
//!
//! At its path there is the old file or the new one, never a part.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use vramfit_core::{Bytes, Error, Result};

use super::writer::WriteOptions;

/// A file that is not published yet.
#[derive(Debug)]
pub(super) struct AtomicFile {
    /// Where it will be.
    pub(super) target: PathBuf,
    /// The file itself.
    pub(super) file: File,
    /// Its temporary name. Without one it disappears with this process.
    name: Option<PathBuf>,
    /// The journal that records the progress of an attempt.
    pub(super) journal: PathBuf,
    /// Whether it is left from an earlier attempt.
    pub(super) is_known: bool,
    options: WriteOptions,
    is_placed: bool,
}

impl AtomicFile {
    /// Makes the file, or opens what an earlier attempt left.
    ///
    /// # Errors
    /// `io` when the path exists, when another process is writing to it, or the disk fails.
    pub(super) fn open(path: &Path, options: WriteOptions) -> Result<Self> {
        let target = std::path::absolute(path).map_err(|error| cannot_write(path, &error))?;
        let folder = folder(&target)?;
        if target.exists() && !options.force {
            return Err(Error::io(format!(
                "`{}` exists and will not be overwritten",
                path.display()
            ))
            .hint("add `--force`, or name another file"));
        }
        // Resumable files have another name than others, so that neither overwrites the other.
        let name = hidden(&target, if options.once { "new" } else { "part" });
        let unnamed = options.once.then(|| open_tmpfile(folder)).flatten();
        let is_known = !options.once && name.exists();
        if is_known && !options.force && !options.resume {
            return Err(Error::io(format!(
                "an earlier attempt left an unfinished `{}`",
                path.display()
            ))
            .hint("add `--resume` to continue it, or `--force` to start over"));
        }
        let (file, name) = match unnamed {
            Some(file) => (file, None),
            None => (create_hidden(path, &name)?, Some(name)),
        };
        Ok(AtomicFile {
            journal: hidden(&target, "journal"),
            target,
            file,
            name,
            is_known,
            options,
            is_placed: false,
        })
    }

    /// Returns a path by which this process can open it now.
    pub(super) fn read_path(&self) -> PathBuf {
        match &self.name {
            Some(name) => name.clone(),
            None => proc_fd_path(&self.file),
        }
    }

    /// Copies the owner and permissions of another file.
    pub(super) fn copy_ownership(&self, other: &Metadata) -> Result<()> {
        // Changing the owner may not be permitted; then it remains ours, as with every editor.
        let _ = std::os::unix::fs::fchown(&self.file, Some(other.uid()), Some(other.gid()));
        let set = self.file.set_permissions(other.permissions());
        set.map_err(|error| cannot_write(&self.target, &error))
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
        Err(error.hint(match self.options.once {
            true => "choose a disk with more free space",
            false => "use fewer samples, or a disk with more free space",
        }))
    }

    /// Moves the file, which is synced, to its path.
    ///
    /// # Errors
    /// `io` when the path was created in the meantime, or the disk fails.
    pub(super) fn publish(&mut self) -> Result<()> {
        let moved = match &self.name {
            None if self.options.force => {
                // A file without a name cannot take the place of another; with one it can.
                let name = hidden(&self.target, "new");
                match std::fs::remove_file(&name) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(cannot_write(&self.target, &error));
                    }
                    _ => {}
                }
                let named = link_name(&self.file, &name).map_err(std::io::Error::from);
                named.and_then(|()| {
                    let renamed = std::fs::rename(&name, &self.target);
                    renamed.inspect_err(|_| {
                        // A leftover is found and replaced by the next attempt.
                        let _ = std::fs::remove_file(&name);
                    })
                })
            }
            None => link_name(&self.file, &self.target).map_err(std::io::Error::from),
            Some(name) if self.options.force => std::fs::rename(name, &self.target),
            Some(name) => rename_to_free(name, &self.target),
        };
        moved.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                let shown = self.target.display();
                let failure = Error::io(format!(
                    "`{shown}` was created in the meantime and will not be overwritten"
                ));
                failure.hint(match self.options.once {
                    true => "move it away, or add `--force`",
                    false => "move it away and add `--resume`",
                })
            }
            _ => cannot_write(&self.target, &error),
        })?;
        self.is_placed = true;
        // The name is on the disk when its directory is synced.
        let synced = self
            .target
            .parent()
            .map_or(Ok(()), |parent| File::open(parent).and_then(|folder| folder.sync_all()));
        let removed = match self.options.once {
            true => Ok(()),
            false => std::fs::remove_file(&self.journal),
        };
        let done = synced.and(removed);
        done.map_err(|error| cannot_write(&self.target, &error))
    }

    /// Removes the unfinished file and its journal.
    pub(super) fn discard(&self) {
        // A file that cannot be removed is found and reported by the next attempt.
        if let Some(name) = &self.name {
            let _ = std::fs::remove_file(name);
        }
        if !self.options.once {
            let _ = std::fs::remove_file(&self.journal);
        }
    }

    /// Returns the error of a failed write, with a hint where the disk is full.
    pub(super) fn failed(&self, error: &std::io::Error) -> Error {
        let failure = cannot_write(&self.target, error);
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                failure.hint(match self.options.once {
                    true => "free disk space, or choose another disk; the partial file was removed",
                    false => "free disk space and add `--resume`; the data written so far is kept",
                })
            }
            _ => failure,
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.options.once && !self.is_placed {
            self.discard();
        }
    }
}

/// Creates a file without a name, where the file system supports it.
fn open_tmpfile(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?);
    // It is opened and linked by the number of its descriptor.
    proc_fd_path(&file).exists().then_some(file)
}

fn proc_fd_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn link_name(file: &File, name: &Path) -> rustix::io::Result<()> {
    rustix::fs::linkat(CWD, proc_fd_path(file), CWD, name, AtFlags::SYMLINK_FOLLOW)
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

/// Returns the directory that a file is to be in.
fn folder(target: &Path) -> Result<&Path> {
    let refuse = |why: &str| Error::io(format!("cannot write `{}`: {why}", target.display()));
    if target.file_name().is_none() || target.is_dir() {
        return Err(refuse("it is a directory"));
    }
    target.parent().filter(|folder| folder.is_dir()).ok_or_else(|| {
        let parent = target.parent().unwrap_or(target);
        refuse("its directory does not exist")
            .hint(format!("create it first: `mkdir -p {}`", parent.display()))
    })
}

/// Returns a hidden name in the directory of the target.
fn hidden(target: &Path, ending: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    target.with_file_name(name)
}

pub(super) fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("cannot write `{}`", path.display())).cause(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(force: bool) -> WriteOptions {
        WriteOptions { force, once: true, ..WriteOptions::default() }
    }

    /// An unfinished file where files without a name are not supported.
    fn named(target: &Path, force: bool) -> AtomicFile {
        let name = hidden(target, "new");
        AtomicFile {
            file: create_hidden(target, &name).unwrap(),
            name: Some(name),
            target: target.to_owned(),
            journal: hidden(target, "journal"),
            is_known: false,
            options: once(force),
            is_placed: false,
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn without_files_without_a_name_a_hidden_one_is_used_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.h5");
        let output = named(&target, false);
        assert_eq!(names(folder.path()), [".x.h5.new"]);
        let error = create_hidden(&target, &hidden(&target, "new")).unwrap_err();
        assert!(error.message().starts_with("another process is writing"));
        drop(output);
        assert!(names(folder.path()).is_empty());

        let mut output = named(&target, false);
        std::io::Write::write_all(&mut &output.file, b"new").unwrap();
        output.publish().unwrap();
        drop(output);
        assert_eq!(names(folder.path()), ["x.h5"]);

        let error = named(&target, false).publish().unwrap_err();
        assert!(error.message().contains("was created in the meantime"));
        let mut output = named(&target, true);
        output.publish().unwrap();
        drop(output);
        assert_eq!(names(folder.path()), ["x.h5"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn a_file_without_a_name_takes_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.h5");
        std::fs::write(&target, "old").unwrap();
        assert!(AtomicFile::open(&target, once(false)).is_err());
        let mut output = AtomicFile::open(&target, once(true)).unwrap();
        std::io::Write::write_all(&mut &output.file, b"new").unwrap();
        assert_eq!(std::fs::read(output.read_path()).unwrap(), b"new");
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        output.publish().unwrap();
        drop(output);
        assert_eq!(names(folder.path()), ["x.h5"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }
}
