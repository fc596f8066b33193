//! Zstandard, one frame a chunk.

use zstd::bulk::Decompressor;

use super::DecodeError;

/// A decompressor, which is large and is kept.
#[derive(Default)]
pub(super) struct ZstdDecoder(Option<Decompressor<'static>>);

impl ZstdDecoder {
    /// Decompresses and returns how many bytes were made.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let unpacker = match &mut self.0 {
            Some(unpacker) => unpacker,
            none => none.insert(Decompressor::new().map_err(|error| error.to_string())?),
        };
        unpacker.decompress_to_buffer(input, out).map_err(|error| {
            DecodeError::damaged(format!(
                "its zstd frame cannot be decoded to {} bytes: {error}",
                out.len()
            ))
        })
    }
}
