//! A position in a piece of the file that was read. Every step is checked; what is missing is an
//! error that names the byte of the file.

use vramfit_base::{Error, Result};

use super::container::Container;

/// Reads little-endian numbers, addresses and texts one after another.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    /// The file that is read.
    pub(crate) container: &'a Container,
    bytes: &'a [u8],
    /// Where in `bytes` the next number is.
    at: usize,
    /// Where in the file `bytes` begins.
    start: u64,
}

impl<'a> Cursor<'a> {
    /// Begins at the first of `bytes`, which were read at `start` of the file.
    pub(crate) fn new(container: &'a Container, bytes: &'a [u8], start: u64) -> Cursor<'a> {
        Cursor { container, bytes, at: 0, start }
    }

    /// Returns the next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(taken) => {
                self.at += length;
                Ok(taken)
            }
            None => Err(self
                .damaged(format_args!("{length} bytes are expected, but {} remain", self.left()))),
        }
    }

    /// Passes over bytes that mean nothing here.
    pub(crate) fn skip(&mut self, length: usize) -> Result<()> {
        self.take(length).map(drop)
    }

    /// Passes over a signature that must be here.
    pub(crate) fn signature(&mut self, expected: &[u8; 4]) -> Result<()> {
        let at = self.offset();
        if self.take(4)? == expected {
            return Ok(());
        }
        let expected = String::from_utf8_lossy(expected);
        let what = format_args!("the signature `{expected}` is missing");
        Err(self.container.damaged(at, what))
    }

    /// Passes over the signature and the version with which a structure begins.
    pub(crate) fn structure(&mut self, signature: &[u8; 4], version: u8, what: &str) -> Result<()> {
        self.signature(signature)?;
        self.version(&[version], what).map(drop)
    }

    /// Passes over a version that must be one of those known.
    pub(crate) fn version(&mut self, known: &[u8], what: &str) -> Result<u8> {
        let version = self.u8()?;
        if known.contains(&version) {
            return Ok(version);
        }
        Err(self.damaged(format_args!("version {version} of {what} is not supported")))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.uint(1)? as u8)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(self.uint(2)? as u16)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(self.uint(4)? as u32)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.uint(8)
    }

    /// Returns a number of one to eight bytes.
    pub(crate) fn uint(&mut self, width: usize) -> Result<u64> {
        let mut number = [0; 8];
        let Some(low) = number.get_mut(..width) else {
            return Err(self.damaged(format_args!("an integer of {width} bytes")));
        };
        low.copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(number))
    }

    /// Returns a length, whose width the superblock says.
    pub(crate) fn length(&mut self) -> Result<u64> {
        self.uint(self.container.length_width)
    }

    /// Returns a place in the file, counted from its first byte, or `None` where nothing is.
    pub(crate) fn address(&mut self) -> Result<Option<u64>> {
        let width = self.container.address_width;
        let relative = self.uint(width)?;
        if relative == u64::MAX >> (64 - 8 * width) {
            return Ok(None);
        }
        match relative.checked_add(self.container.base) {
            Some(address) => Ok(Some(address)),
            None => Err(self.damaged("an address is out of range")),
        }
    }

    /// Returns a place in the file that must be there.
    pub(crate) fn known_address(&mut self, what: &str) -> Result<u64> {
        match self.address()? {
            Some(address) => Ok(address),
            None => Err(self.damaged(format_args!("the address of {what} is undefined"))),
        }
    }

    /// Returns a text of this many bytes, up to the first zero.
    pub(crate) fn text(&mut self, length: usize) -> Result<String> {
        let bytes = self.take(length)?;
        let end = bytes.iter().position(|&byte| byte == 0);
        let text = &bytes[..end.unwrap_or(length)];
        // Old files have names in other encodings; they can still be listed.
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Returns a text that ends with a zero, and passes over that zero.
    pub(crate) fn terminated_text(&mut self) -> Result<String> {
        match self.rest().iter().position(|&byte| byte == 0) {
            Some(length) => {
                let text = self.text(length)?;
                self.skip(1)?;
                Ok(text)
            }
            None => Err(self.damaged("a string is not terminated")),
        }
    }

    /// Checks that the checksum that follows is that of everything before it.
    pub(crate) fn checksum(&mut self) -> Result<()> {
        let computed = super::checksum::checksum(&self.bytes[..self.at]);
        let stored = self.u32()?;
        if stored == computed {
            return Ok(());
        }
        let what = format_args!("the checksum is {stored:#010x}, expected {computed:#010x}");
        Err(self.container.damaged(self.start, what))
    }

    /// Returns how many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns the bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Returns where in the file the next byte is.
    pub(crate) fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Returns an error that something is wrong just here.
    pub(crate) fn damaged(&self, what: impl std::fmt::Display) -> Error {
        self.container.damaged(self.offset(), what)
    }
}
