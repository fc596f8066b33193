//! A file that is being written: beside its place under a hidden name, and put there when it is whole.
//!
//! Whoever looks at the final name sees the old file or the new one, never a part. The unfinished file
//! begins with zeros, so nothing takes it for HDF5. After a kill it can be gone on with.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, RenameFlags};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::content::{Content, Storage};
use super::front::{self, Places};
use super::index::{Chunk, tree};
use super::journal::{Entry, Journal};

/// How a file is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Replace the file if it exists, and what an earlier attempt left.
    pub force: bool,
    /// Go on with what an earlier attempt left, if it left anything.
    pub resume: bool,
    /// How many bytes are written between two points from which a later attempt can go on.
    pub safe_every: Bytes,
}

impl Default for Manner {
    fn default() -> Self {
        Manner {
            force: false,
            resume: false,
            safe_every: Bytes(64 << 20),
        }
    }
}

/// A file being written, piece by piece: a piece has a stretch of rows of every dataset.
#[derive(Debug)]
pub(super) struct Writer {
    target: PathBuf,
    part: PathBuf,
    journal_path: PathBuf,
    file: File,
    journal: Journal,
    content: Content,
    places: Places,
    manner: Manner,
    done: Entry,
    chunks: Vec<Vec<Chunk>>,
    unsafe_bytes: u64,
    unsafe_chunks: Vec<u32>,
}

impl Writer {
    /// Begins a file, or goes on with one.
    ///
    /// `purpose` says what is written, such as all settings: an attempt with another purpose is not
    /// gone on with.
    ///
    /// # Errors
    /// `io` when the file exists, when an unfinished one
    /// does, when there is not enough space, or when the disk refuses.
    pub(super) fn open(
        path: &Path,
        content: Content,
        purpose: &str,
        manner: Manner,
        expected: Bytes,
    ) -> Result<Self> {
        let target = std::path::absolute(path).map_err(|error| cannot("write", path, &error))?;
        let (part, journal_path) = hidden_names(&target)?;
        if target.exists() && !manner.force {
            return Err(Error::new(
                ErrorKind::Io,
                format!("`{}` exists and will not be overwritten", path.display()),
            )
            .hint("add `--force`, or name another file"));
        }
        let known = part.exists();
        if known && !manner.force && !manner.resume {
            return Err(Error::new(
                ErrorKind::Io,
                format!(
                    "an unfinished `{}` is there from an earlier attempt",
                    path.display()
                ),
            )
            .hint("add `--resume` to go on with it, or `--force` to begin again"));
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options
            .open(&part)
            .map_err(|error| cannot("write", path, &error))?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Who finished in between has moved away what was opened here.
        let moved = || {
            let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
            let is = file.metadata().map(identity).ok();
            is.is_none() || is != std::fs::metadata(&part).map(identity).ok()
        };
        if locked.is_err() || moved() {
            return Err(Error::new(
                ErrorKind::Io,
                format!("another process is writing `{}`", path.display()),
            ));
        }

        let places = front::places(&content);
        let found = match known && manner.resume {
            true => Journal::open(&journal_path, purpose)?,
            false => None,
        };
        if found.is_none() && known && manner.resume && !manner.force {
            return Err(Error::new(
                ErrorKind::Io,
                format!(
                    "the unfinished `{}` was begun with other options",
                    path.display()
                ),
            )
            .hint("give the options of the first attempt, or `--force` to begin again"));
        }
        let (journal, mut done) = match found {
            Some(found) => found,
            None => (Journal::create(&journal_path, purpose)?, Entry::default()),
        };
        if done.pieces == 0 {
            done.end = places.chunks;
        }
        let mut writer = Writer {
            chunks: content.datasets.iter().map(|_| Vec::new()).collect(),
            target,
            part,
            journal_path,
            file,
            journal,
            places,
            manner,
            unsafe_bytes: 0,
            unsafe_chunks: Vec::new(),
            done,
            content,
        };
        writer.find_chunks()?;
        // What lies behind the last safe point is written again; without one, all of it.
        let fresh = writer.done.pieces == 0;
        if fresh {
            let emptied = writer.file.set_len(0);
            emptied.map_err(|error| writer.failed(&error))?;
        }
        let ready = writer.check_space(path, expected).and_then(|()| {
            let sized = writer.file.set_len(writer.done.end);
            sized.map_err(|error| writer.failed(&error))
        });
        if ready.is_err() && fresh {
            writer.discard();
        }
        ready?;
        Ok(writer)
    }

    /// Returns how many pieces are there already.
    pub(super) fn pieces(&self) -> u64 {
        self.done.pieces
    }

    /// Adds the next piece: for each dataset its stored bytes, and the row at which they begin.
    ///
    /// # Errors
    /// `io` when the disk refuses.
    pub(super) fn add(&mut self, first_row: u64, stored: &[Vec<u8>]) -> Result<()> {
        for (at, bytes) in stored.iter().enumerate() {
            let address = match self.places.contiguous[at] {
                Some(start) => start + first_row * self.content.datasets[at].row_bytes(),
                None => {
                    let address = self.done.end;
                    self.done.end += bytes.len() as u64;
                    let chunk = Chunk {
                        address,
                        bytes: bytes.len() as u32,
                    };
                    self.chunks[at].push(chunk);
                    self.unsafe_chunks.push(chunk.bytes);
                    address
                }
            };
            self.file
                .write_all_at(bytes, address)
                .map_err(|error| self.failed(&error))?;
            self.unsafe_bytes += bytes.len() as u64;
        }
        self.done.pieces += 1;
        if self.unsafe_bytes >= self.manner.safe_every.0 {
            self.make_safe().map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Writes the index and the front, and puts the file in its place. Returns its size.
    ///
    /// # Errors
    /// `io` when the disk refuses, or when the name was taken meanwhile.
    pub(super) fn finish(mut self) -> Result<Bytes> {
        let mut end = self.done.end.next_multiple_of(8);
        let mut addresses = Vec::new();
        for (at, dataset) in self.content.datasets.iter().enumerate() {
            let address = match self.places.contiguous[at] {
                Some(address) => address,
                None => {
                    let (nodes, root) = tree(dataset, &self.chunks[at], end);
                    self.file
                        .write_all_at(&nodes, end)
                        .map_err(|error| self.failed(&error))?;
                    end += nodes.len() as u64;
                    root
                }
            };
            addresses.push(address);
        }
        let front = front::encode(&self.content, &addresses, end);
        let written = self
            .file
            .set_len(end)
            .and_then(|()| self.file.sync_data())
            // The front makes it HDF5, so it comes when all else is safe.
            .and_then(|()| self.file.write_all_at(&front, 0))
            .and_then(|()| self.file.sync_all());
        written.map_err(|error| self.failed(&error))?;
        self.put_in_place()?;
        self.done.end = end;
        Ok(Bytes(end))
    }

    fn put_in_place(&self) -> Result<()> {
        use rustix::fs::{CWD, renameat_with};
        let shown = self.target.display();
        let mut moved = if self.manner.force {
            std::fs::rename(&self.part, &self.target)
                .map_err(|error| cannot("write", &self.target, &error))
        } else {
            match renameat_with(CWD, &self.part, CWD, &self.target, RenameFlags::NOREPLACE) {
                Err(rustix::io::Errno::EXIST) => Err(Error::new(
                    ErrorKind::Io,
                    format!("`{shown}` came into being meanwhile and will not be overwritten"),
                )
                .hint("move it away and add `--resume`")),
                // Some network file systems do not know the flag.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS)
                    if !self.target.exists() =>
                {
                    std::fs::rename(&self.part, &self.target)
                        .map_err(|error| cannot("write", &self.target, &error))
                }
                other => other.map_err(|error| cannot("write", &self.target, &error)),
            }
        };
        if moved.is_ok() {
            // The name itself is on the disk when its directory is.
            let synced = self.target.parent().map_or(Ok(()), |parent| {
                File::open(parent).and_then(|folder| folder.sync_all())
            });
            let removed = std::fs::remove_file(&self.journal_path);
            moved = synced
                .and(removed)
                .map_err(|error| cannot("write", &self.target, &error));
        }
        moved
    }

    /// Makes sure that all pieces so far survive a power cut, and notes it.
    fn make_safe(&mut self) -> std::io::Result<()> {
        self.file.sync_data()?;
        let entry = Entry {
            pieces: self.done.pieces,
            end: self.done.end,
            chunks: std::mem::take(&mut self.unsafe_chunks),
        };
        self.unsafe_bytes = 0;
        self.journal.add(&entry)
    }

    /// Finds where the chunks of an earlier attempt are: they lie one behind the other.
    fn find_chunks(&mut self) -> Result<()> {
        let chunked: Vec<usize> = (0..self.content.datasets.len())
            .filter(|&at| self.content.datasets[at].storage != Storage::Contiguous)
            .collect();
        let mut address = self.places.chunks;
        for (number, &bytes) in self.done.chunks.iter().enumerate() {
            self.chunks[chunked[number % chunked.len().max(1)]].push(Chunk { address, bytes });
            address += u64::from(bytes);
        }
        self.done.chunks = Vec::new();
        let len = self.file.metadata().map_or(0, |data| data.len());
        let missing = self.done.pieces > 0 && len < self.done.end;
        if address != self.done.end || missing {
            return Err(Error::new(
                ErrorKind::InvalidFile,
                format!(
                    "the unfinished `{}` and its journal contradict each other",
                    self.target.display()
                ),
            )
            .hint("add `--force` to begin again"));
        }
        Ok(())
    }

    fn check_space(&self, path: &Path, expected: Bytes) -> Result<()> {
        let Ok(disk) = rustix::fs::fstatvfs(&self.file) else {
            return Ok(());
        };
        let available = Bytes(disk.f_bavail * disk.f_frsize);
        let held = self.file.metadata().map_or(0, |data| data.blocks() * 512);
        let needed = Bytes(expected.0.saturating_sub(held));
        if needed <= available {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Io,
            format!(
                "`{}` needs {needed} ({} bytes), and its disk has {available} ({} bytes)",
                path.display(),
                needed.0,
                available.0
            ),
        )
        .hint("take fewer samples, or a place with more room"))
    }

    /// Removes what was begun.
    fn discard(&self) {
        // A file that cannot be removed is found by the next attempt, which says so.
        let _ = std::fs::remove_file(&self.part);
        let _ = std::fs::remove_file(&self.journal_path);
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        let failure = cannot("write", &self.target, error);
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                failure.hint("make room and add `--resume`: what was written so far is kept")
            }
            _ => failure,
        }
    }
}

/// Returns the hidden names of the unfinished file and its journal, beside the target.
fn hidden_names(target: &Path) -> Result<(PathBuf, PathBuf)> {
    let refuse = |why: &str| {
        Error::new(
            ErrorKind::Io,
            format!("cannot write `{}`: {why}", target.display()),
        )
    };
    let name = target
        .file_name()
        .filter(|_| !target.is_dir())
        .ok_or_else(|| refuse("it is a directory"))?;
    let folder = target
        .parent()
        .filter(|folder| folder.is_dir())
        .ok_or_else(|| {
            let parent = target.parent().unwrap_or(target);
            refuse("its directory does not exist")
                .hint(format!("make it first: `mkdir -p {}`", parent.display()))
        })?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    let mut journal = hidden.clone();
    hidden.push(".part");
    journal.push(".journal");
    Ok((folder.join(hidden), folder.join(journal)))
}

fn cannot(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} `{}`", path.display())).cause(error)
}
