//! A file beside its place: under a hidden name, or without any, and put there when it is whole.
//!
//! Whoever looks at the final name sees the old file or the new one, never a part.

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::writer::WriteOptions;

/// A file that is not in its place yet.
#[derive(Debug)]
pub(super) struct AtomicFile {
    target: PathBuf,
    /// The file itself.
    pub(super) file: File,
    /// Its name for now. Without one it is gone when this process is, however that ends.
    name: Option<PathBuf>,
    /// Where it is told how far an attempt came.
    pub(super) journal: PathBuf,
    /// Whether an earlier attempt had begun it.
    pub(super) is_known: bool,
    options: WriteOptions,
    is_placed: bool,
}

impl AtomicFile {
    /// Makes the file, or opens what an earlier attempt left.
    ///
    /// # Errors
    /// `io` when the final name is taken, when another process is writing to it, or the disk refuses.
    pub(super) fn open(path: &Path, options: WriteOptions) -> Result<Self> {
        let target = std::path::absolute(path).map_err(|error| cannot("write", path, &error))?;
        let folder = folder(&target)?;
        if target.exists() && !options.force {
            return Err(Error::new(
                ErrorKind::Io,
                format!("`{}` exists and will not be overwritten", path.display()),
            )
            .hint("add `--force`, or name another file"));
        }
        // What can be gone on with has another name than what cannot, so that neither destroys the other.
        let name = hidden(&target, if options.once { "new" } else { "part" });
        let unnamed = options.once.then(|| open_tmpfile(folder)).flatten();
        let is_known = !options.once && name.exists();
        if is_known && !options.force && !options.resume {
            return Err(Error::new(
                ErrorKind::Io,
                format!(
                    "an unfinished `{}` is there from an earlier attempt",
                    path.display()
                ),
            )
            .hint("add `--resume` to go on with it, or `--force` to begin again"));
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

    /// Returns where it will be.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Returns a path by which this process can open it now.
    pub(super) fn read_path(&self) -> PathBuf {
        match &self.name {
            Some(name) => name.clone(),
            None => proc_fd_path(&self.file),
        }
    }

    /// Lets the same people read and write it as another file.
    pub(super) fn copy_ownership(&self, other: &Metadata) -> Result<()> {
        // Only some may give files away. Who may not keeps it, as with every editor.
        let _ = std::os::unix::fs::fchown(&self.file, Some(other.uid()), Some(other.gid()));
        let set = self.file.set_permissions(other.permissions());
        set.map_err(|error| cannot("write", &self.target, &error))
    }

    /// Refuses where there is less room than for a file of so many bytes.
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
        let error = Error::new(
            ErrorKind::Io,
            format!(
                "`{}` needs {needed} ({} bytes), and its disk has {available} ({} bytes)",
                path.display(),
                needed.0,
                available.0
            ),
        );
        Err(error.hint(match self.options.once {
            true => "name a place with more room",
            false => "take fewer samples, or a place with more room",
        }))
    }

    /// Gives the file its name. It is on the disk.
    ///
    /// # Errors
    /// `io` when the name was taken meanwhile, or the disk refuses.
    pub(super) fn publish(&mut self) -> Result<()> {
        let moved = match &self.name {
            None if self.options.force => {
                // A file without a name cannot take the place of another; with one it can.
                let name = hidden(&self.target, "new");
                match std::fs::remove_file(&name) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(cannot("write", &self.target, &error));
                    }
                    _ => {}
                }
                let named = link_name(&self.file, &name).map_err(std::io::Error::from);
                named.and_then(|()| {
                    let renamed = std::fs::rename(&name, &self.target);
                    renamed.inspect_err(|_| {
                        // It has just been made; what stays behind is found and replaced next time.
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
                let failure = Error::new(
                    ErrorKind::Io,
                    format!("`{shown}` came into being meanwhile and will not be overwritten"),
                );
                failure.hint(match self.options.once {
                    true => "move it away, or add `--force`",
                    false => "move it away and add `--resume`",
                })
            }
            _ => cannot("write", &self.target, &error),
        })?;
        self.is_placed = true;
        // The name itself is on the disk when its directory is.
        let synced = self.target.parent().map_or(Ok(()), |parent| {
            File::open(parent).and_then(|folder| folder.sync_all())
        });
        let removed = match self.options.once {
            true => Ok(()),
            false => std::fs::remove_file(&self.journal),
        };
        let done = synced.and(removed);
        done.map_err(|error| cannot("write", &self.target, &error))
    }

    /// Removes what was begun.
    pub(super) fn discard(&self) {
        // What cannot be removed is found by the next attempt, which says so.
        if let Some(name) = &self.name {
            let _ = std::fs::remove_file(name);
        }
        if !self.options.once {
            let _ = std::fs::remove_file(&self.journal);
        }
    }

    /// Says what went wrong while writing.
    pub(super) fn failed(&self, error: &std::io::Error) -> Error {
        let failure = cannot("write", &self.target, error);
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                failure.hint(match self.options.once {
                    true => "make room, or name another place: nothing is left of what was written",
                    false => "make room and add `--resume`: what was written so far is kept",
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

/// Makes a file that has no name, where the file system knows such files.
fn open_tmpfile(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?);
    // Its number is what it can be opened by, and given a name by.
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
    let file = options
        .open(name)
        .map_err(|error| cannot("write", path, &error))?;
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    // Who finished in between has moved away what was opened here.
    let moved = || {
        let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
        let is = file.metadata().map(identity).ok();
        is.is_none() || is != std::fs::metadata(name).map(identity).ok()
    };
    if locked.is_err() || moved() {
        return Err(Error::new(
            ErrorKind::Io,
            format!("another process is writing `{}`", path.display()),
        ));
    }
    Ok(file)
}

/// Renames a file unless the new name is taken.
fn rename_to_free(name: &Path, target: &Path) -> std::io::Result<()> {
    match rustix::fs::renameat_with(CWD, name, CWD, target, RenameFlags::NOREPLACE) {
        // Some network file systems do not know the flag.
        Err(Errno::INVAL | Errno::NOSYS) if !target.exists() => std::fs::rename(name, target),
        other => Ok(other?),
    }
}

/// Returns the directory that a file is to be in.
fn folder(target: &Path) -> Result<&Path> {
    let refuse = |why: &str| {
        Error::new(
            ErrorKind::Io,
            format!("cannot write `{}`: {why}", target.display()),
        )
    };
    if target.file_name().is_none() || target.is_dir() {
        return Err(refuse("it is a directory"));
    }
    target
        .parent()
        .filter(|folder| folder.is_dir())
        .ok_or_else(|| {
            let parent = target.parent().unwrap_or(target);
            refuse("its directory does not exist")
                .hint(format!("make it first: `mkdir -p {}`", parent.display()))
        })
}

/// Returns a hidden name beside the target.
fn hidden(target: &Path, ending: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    target.with_file_name(name)
}

/// Returns an error about a file that is written.
pub(super) fn cannot(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} `{}`", path.display())).cause(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place as it is where files without a name are not known.
    fn named(target: &Path, force: bool) -> AtomicFile {
        let name = hidden(target, "new");
        AtomicFile {
            file: create_hidden(target, &name).unwrap(),
            name: Some(name),
            target: target.to_owned(),
            journal: hidden(target, "journal"),
            is_known: false,
            options: WriteOptions {
                force,
                once: true,
                ..WriteOptions::default()
            },
            is_placed: false,
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn without_files_without_a_name_a_hidden_one_is_used_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.h5");
        let place = named(&target, false);
        assert_eq!(names(folder.path()), [".x.h5.new"]);
        let error = create_hidden(&target, &hidden(&target, "new")).unwrap_err();
        assert!(error.message().starts_with("another process is writing"));
        drop(place);
        assert!(names(folder.path()).is_empty());

        let mut place = named(&target, false);
        std::io::Write::write_all(&mut &place.file, b"new").unwrap();
        place.publish().unwrap();
        drop(place);
        assert_eq!(names(folder.path()), ["x.h5"]);

        let error = named(&target, false).publish().unwrap_err();
        assert!(error.message().contains("came into being meanwhile"));
        let mut place = named(&target, true);
        place.publish().unwrap();
        drop(place);
        assert_eq!(names(folder.path()), ["x.h5"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }

    #[test]
    fn a_file_without_a_name_takes_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x.h5");
        std::fs::write(&target, "old").unwrap();
        let once = |force| WriteOptions {
            force,
            once: true,
            ..WriteOptions::default()
        };
        assert!(AtomicFile::open(&target, once(false)).is_err());
        let mut place = AtomicFile::open(&target, once(true)).unwrap();
        std::io::Write::write_all(&mut &place.file, b"new").unwrap();
        assert_eq!(std::fs::read(place.read_path()).unwrap(), b"new");
        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        place.publish().unwrap();
        drop(place);
        assert_eq!(names(folder.path()), ["x.h5"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }
}
