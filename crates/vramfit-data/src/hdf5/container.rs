//! A file's superblock: where everything begins and how wide addresses are.

use std::sync::Arc;

use vramfit_base::{Error, Result};

use super::cache_image::CacheImage;
use super::cursor::Cursor;
use super::unclosed;
use crate::source::Source;

const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// An HDF5 file whose superblock was read. Copies are cheap and share the file.
#[derive(Clone, Debug)]
pub struct Container {
    source: Arc<Source>,
    /// Where the superblock is: all addresses count from there, behind a user block.
    pub(crate) base: u64,
    /// How many bytes an address has, and a length.
    pub(crate) address_width: usize,
    pub(crate) length_width: usize,
    /// Where the header of the root group is.
    pub(crate) root: u64,
    /// What is to be read instead of parts of the structure.
    image: Option<Arc<CacheImage>>,
    /// Whether files that were not closed are read, also those that this one refers to.
    allows_unclosed: bool,
    /// What a reader should know of a file that was not closed.
    unclosed: Option<Arc<str>>,
    /// Whether a program appends to it while others read it.
    is_swmr: bool,
}

impl Container {
    /// Reads the superblock.
    ///
    /// # Errors
    ///
    /// `file-not-closed` when a program has it open for writing, or ended without closing it;
    /// `invalid-file` when it is not an HDF5 file or was cut short; `unsupported-feature` when it
    /// is of a later version than 3.
    pub fn open(source: Arc<Source>) -> Result<Container> {
        Container::open_unclosed(source, false)
    }

    /// Reads the superblock of a file, which need not have been closed if such files are allowed.
    ///
    /// # Errors
    ///
    /// As [`Container::open`].
    pub fn open_unclosed(source: Arc<Source>, is_allowed: bool) -> Result<Container> {
        unclosed::must_not_be_locked(&source)?;
        Container::read(source, is_allowed)
    }

    fn read(source: Arc<Source>, allows_unclosed: bool) -> Result<Container> {
        let base = find_superblock(&source)?;
        let mut container = Container {
            source,
            base,
            address_width: 8,
            length_width: 8,
            root: 0,
            image: None,
            allows_unclosed,
            unclosed: None,
            is_swmr: false,
        };
        let length = container.source.length().saturating_sub(base).min(160);
        let mut bytes = vec![0; length as usize];
        container.source.read_at(base, &mut bytes)?;
        let Superblock { root, end, extension, flags } = match bytes.get(8) {
            Some(0 | 1) => container.read_old(&bytes)?,
            Some(2 | 3) => container.read_new(&bytes)?,
            Some(version) => {
                return Err(Error::unsupported_feature(format!(
                    "`{}` has superblock version {version}; the latest supported is 3",
                    container.source.path().display()
                )));
            }
            None => {
                return Err(container.damaged(base + 8, "the superblock is truncated"));
            }
        };
        let unclosed = unclosed::check_closed(&container.source, bytes[8], flags, allows_unclosed)?;
        container.unclosed = unclosed.map(Arc::from);
        container.is_swmr = unclosed::is_swmr(flags);
        container.root = root;
        if end > container.source.length() {
            return Err(Error::invalid_file(format!(
                "`{}` is truncated: it has {} of {end} bytes",
                container.source.path().display(),
                container.source.length()
            ))
            .hint("copy it again, or wait until the program that writes it has closed it"));
        }
        if let Some(extension) = extension {
            container.image = CacheImage::read(&container, extension)?.map(Arc::new);
        }
        Ok(container)
    }

    /// Returns the file itself.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns what a reader should know of a file that was not closed.
    pub fn unclosed(&self) -> Option<&str> {
        self.unclosed.as_deref()
    }

    /// Whether a program appends to it while others read it (SWMR): it grows, but what was there stays where it is.
    pub(crate) fn is_swmr(&self) -> bool {
        self.is_swmr
    }

    /// Whether files that were not closed are read.
    pub(crate) fn allows_unclosed(&self) -> bool {
        self.allows_unclosed
    }

    /// Fills `out` with the bytes of the file's structure from `address` on.
    ///
    /// # Errors
    ///
    /// As [`Source::read_at`].
    pub(crate) fn read_structure(&self, address: u64, out: &mut [u8]) -> Result<()> {
        self.source.read_at(address, out)?;
        if let Some(image) = &self.image {
            image.overlay(address, out);
        }
        Ok(())
    }

    /// Returns what is wrong with the file's content at `offset`, as an error.
    pub(crate) fn damaged(&self, offset: u64, what: impl std::fmt::Display) -> Error {
        self.source.damaged(offset, what)
    }

    /// Reads the widths of addresses and lengths, which are this many bytes behind the version.
    fn read_widths(&mut self, bytes: &[u8], behind: usize) -> Result<()> {
        let mut cursor = Cursor::new(self, bytes, self.base);
        cursor.skip(9)?;
        cursor.skip(behind)?;
        let widths = [cursor.u8()?, cursor.u8()?];
        if let Some(width) = widths.iter().find(|width| !matches!(width, 2 | 4 | 8)) {
            return Err(cursor.damaged(format_args!("addresses of {width} bytes")));
        }
        [self.address_width, self.length_width] = widths.map(usize::from);
        Ok(())
    }

    fn read_old(&mut self, bytes: &[u8]) -> Result<Superblock> {
        // Versions of free space and root entry, which have only ever been zero, and of shared headers.
        self.read_widths(bytes, 4)?;
        let mut cursor = Cursor::new(self, bytes, self.base);
        // Behind the widths: ranks of the group trees, flags, and in version 1 the rank of the chunk trees.
        cursor.skip(20)?;
        let flags = cursor.u32()?;
        if bytes[8] == 1 {
            cursor.skip(4)?;
        }
        let (_, end) = read_end(&mut cursor)?;
        cursor.address()?;
        // The root's entry: the offset of its name, then its header.
        cursor.address()?;
        Ok(Superblock {
            root: cursor.known_address("the root group")?,
            end,
            extension: None,
            flags,
        })
    }

    fn read_new(&mut self, bytes: &[u8]) -> Result<Superblock> {
        self.read_widths(bytes, 0)?;
        let mut cursor = Cursor::new(self, bytes, self.base);
        cursor.skip(11)?;
        let flags = cursor.u8()?.into();
        let (extension, end) = read_end(&mut cursor)?;
        let root = cursor.known_address("the root group")?;
        cursor.checksum()?;
        Ok(Superblock { root, end, extension, flags })
    }
}

/// What a superblock says.
struct Superblock {
    root: u64,
    /// Where the file ends.
    end: u64,
    /// Where more is said of the file as a whole.
    extension: Option<u64>,
    /// Whether it was closed, among others.
    flags: u32,
}

/// Reads base address, one more address, and where the file ends; returns the latter two. That end counts
/// from the file's first byte as it was written: a user block that was put in front later is not in it.
fn read_end(cursor: &mut Cursor<'_>) -> Result<(Option<u64>, u64)> {
    let width = cursor.container.address_width;
    let written_base = cursor.uint(width)?;
    let between = cursor.address()?;
    let end = cursor.uint(width)?;
    let end = end.checked_sub(written_base);
    match end.and_then(|end| end.checked_add(cursor.container.base)) {
        Some(end) => Ok((between, end)),
        None => Err(cursor.damaged("the end address of the file is before its base address")),
    }
}

/// Looks where the format says to: at the beginning, then at 512 bytes, and at every double of it.
fn find_superblock(source: &Source) -> Result<u64> {
    let mut at = 0;
    while at + 8 <= source.length() {
        let mut bytes = [0; 8];
        source.read_at(at, &mut bytes)?;
        if bytes == SIGNATURE {
            return Ok(at);
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    let path = source.path().display();
    if source.length() == 0 {
        let error = Error::invalid_file(format!("`{path}` is empty"));
        return Err(error
            .hint("the program that creates it has not written any data yet, or was terminated before it did"));
    }
    Err(Error::invalid_file(format!("`{path}` is not an HDF5 file")))
}
