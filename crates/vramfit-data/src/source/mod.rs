//! The bytes of a file, read at positions: by `pread`, through a mapping, or from memory.
//!
//! `pread` is what is used unless a caller asks for a mapping, because the two fail differently. A
//! read beyond the end of a file that was truncated under us is an error here; an access to a
//! mapping of it is a signal that ends the process. [`Access`] says when a mapping is taken.

mod file_list;
mod fingerprint;
mod lock;
mod mapping;
mod open_count;
mod sample;

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vramfit_base::{Error, Result, files};

pub use file_list::{is_zarr_store, list_files};
pub use fingerprint::{FileFingerprint, FileIdentity};
pub use lock::Writer;
use mapping::Mapping;
pub(crate) use open_count::set_close_idle;
use open_count::{OpenFileGuard, is_exhausted, open_counted};
pub use sample::{MAX_SAMPLED_BYTES, sample_digest};

/// How the bytes of a file are to be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Every read is a `pread`.
    #[default]
    Read,
    /// The file is mapped where that is safe and pays: it lies on a local file system, it takes at
    /// most half of the memory that is available, and no HDF5 program has it open for writing. Such
    /// programs are kept from opening it meanwhile by the lock that libhdf5 itself uses. What does
    /// not use that lock can still truncate the file, which then ends this process with `SIGBUS`.
    /// Where any of the conditions fails, every read is a `pread`.
    MapIfSafe,
}

/// A file's bytes, or bytes in memory that are read as if they were one.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    length: u64,
    bytes: Bytes,
    /// Behind the bytes, because it is dropped after them.
    _counted: Option<OpenFileGuard>,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Mapped(Mapping),
    Memory(Vec<u8>),
}

impl Source {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// `io` when it cannot be opened or is not a regular file.
    pub fn open(path: &Path, access: Access) -> Result<Source> {
        let must_be_regular = |metadata: &Metadata| {
            if metadata.is_file() {
                return Ok(());
            }
            let error = Error::io(format!("`{}` is not a regular file", path.display()));
            Err(match metadata.is_dir() {
                true => error,
                false => error.hint("HDF5 needs random access: copy the data of a pipe or device to a regular file first"),
            })
        };
        // Before it is opened, because opening a pipe waits for its writer, and opening a device may do anything.
        must_be_regular(&read_metadata(path)?)?;
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let opened = open_counted(|| options.open(path));
        let (file, counted) = opened.map_err(|error| cannot_read(path, error))?;
        let metadata = file.metadata().map_err(|error| cannot_read(path, error))?;
        must_be_regular(&metadata)?;
        let length = metadata.len();
        let bytes = match access {
            Access::Read => Bytes::File(file),
            Access::MapIfSafe => match Mapping::if_safe(file, length) {
                Ok(mapping) => Bytes::Mapped(mapping),
                Err(file) => Bytes::File(file),
            },
        };
        Ok(Source { path: path.to_owned(), length, bytes, _counted: Some(counted) })
    }

    /// Reads bytes in memory as if they were a file of that name.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Source {
        Source {
            path: PathBuf::from(name),
            length: bytes.len() as u64,
            bytes: Bytes::Memory(bytes),
            _counted: None,
        }
    }

    /// Returns the path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length in bytes, as it was when the file was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Asks who has the file open for writing.
    pub fn find_writer(&self) -> Writer {
        match &self.bytes {
            Bytes::File(file) => lock::find_writer(file),
            // A mapping holds the lock of readers.
            Bytes::Mapped(_) | Bytes::Memory(_) => Writer::None,
        }
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// `invalid-file` when the file ends before; `io` when the system cannot read it.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.check(offset, out.len() as u64)?;
        if let Some(view) = self.slice(offset, out.len()) {
            out.copy_from_slice(view);
            return Ok(());
        }
        let Bytes::File(file) = &self.bytes else {
            return Err(self.ends_before(offset, out.len() as u64));
        };
        file.read_exact_at(out, offset).map_err(|error| {
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                // It was long enough when it was opened.
                return Error::invalid_file(format!(
                    "`{}` was truncated while being read",
                    self.path.display()
                ))
                .hint("open it again after the program that writes it has finished");
            }
            Error::io(format!(
                "cannot read {} bytes at {offset} of `{}`",
                out.len(),
                self.path.display()
            ))
            .cause(error)
        })
    }

    /// Returns bytes without copying them, where the file is mapped.
    ///
    /// # Errors
    ///
    /// `invalid-file` when the file ends before.
    pub fn view(&self, offset: u64, length: u64) -> Result<Option<&[u8]>> {
        self.check(offset, length)?;
        Ok(usize::try_from(length).ok().and_then(|length| self.slice(offset, length)))
    }

    /// Returns what is wrong with the file's content at `offset`, as an error.
    pub fn damaged(&self, offset: u64, what: impl std::fmt::Display) -> Error {
        Error::invalid_file(format!(
            "`{}` is damaged at byte {offset}: {what}",
            self.path.display()
        ))
    }

    /// Checks that the file holds `length` bytes from `offset` on.
    pub(crate) fn check(&self, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(self.ends_before(offset, length)),
        }
    }

    fn ends_before(&self, offset: u64, length: u64) -> Error {
        self.damaged(
            offset,
            format_args!(
                "a structure of {length} bytes exceeds the file, which has {}",
                self.length
            ),
        )
    }

    fn slice(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let all: &[u8] = match &self.bytes {
            Bytes::File(_) => return None,
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Memory(bytes) => bytes,
        };
        let start = usize::try_from(offset).ok()?;
        all.get(start..start.checked_add(length)?)
    }
}

/// Returns what the file system says of a file.
pub(crate) fn read_metadata(path: &Path) -> Result<Metadata> {
    std::fs::metadata(path).map_err(|error| match file_list::ensure_local(path) {
        Ok(()) => cannot_read(path, error),
        Err(address) => address,
    })
}

fn cannot_read(path: &Path, error: std::io::Error) -> Error {
    let is_exhausted = is_exhausted(&error);
    let failed = files::cannot_read(path, error);
    match is_exhausted {
        true => failed.hint("raise the limit of open files: `ulimit -n 65536`"),
        false => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_base::ErrorKind;

    #[test]
    fn reads_are_the_same_by_every_access() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers");
        let bytes: Vec<u8> = (0..=255).collect();
        std::fs::write(&path, &bytes).unwrap();
        for source in [
            Source::open(&path, Access::Read).unwrap(),
            Source::open(&path, Access::MapIfSafe).unwrap(),
            Source::from_bytes("numbers", bytes.clone()),
        ] {
            let mut out = [0; 3];
            source.read_at(253, &mut out).unwrap();
            assert_eq!(out, [253, 254, 255]);
            let error = source.read_at(254, &mut out).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile);
            assert!(source.view(u64::MAX, 2).is_err());
        }
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error_and_not_a_signal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shrinks");
        std::fs::write(&path, [7; 100]).unwrap();
        let source = Source::open(&path, Access::Read).unwrap();
        std::fs::write(&path, [7; 10]).unwrap();
        let error = source.read_at(50, &mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        assert!(error.message().contains("truncated"), "{error}");
    }

    #[test]
    fn directories_are_refused() {
        let error = Source::open(Path::new("/"), Access::Read).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }
}
