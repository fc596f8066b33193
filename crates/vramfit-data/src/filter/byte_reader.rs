//! Reading the frames that plugins put around what they compress.

use super::DecodeError;

/// What is left of a frame.
pub(super) struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader(bytes)
    }

    /// Returns the next bytes.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.0.split_at_checked(length) else {
            return Err(DecodeError::damaged(format!(
                "{length} bytes are expected, but {} remain",
                self.0.len()
            )));
        };
        self.0 = rest;
        Ok(taken)
    }

    /// Returns what is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn be_u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn be_u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn le_u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn le_u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], DecodeError> {
        let Some((taken, rest)) = self.0.split_first_chunk() else {
            return Err(DecodeError::damaged(format!(
                "{LENGTH} bytes are expected, but {} remain",
                self.0.len()
            )));
        };
        self.0 = rest;
        Ok(*taken)
    }
}
