//! Zstandard, one frame a chunk.

use zstd::bulk::Decompressor;

use super::Fault;

/// A decompressor, which is large and is kept.
#[derive(Default)]
pub(super) struct Unpacker(Option<Decompressor<'static>>);

impl Unpacker {
    /// Decompresses and returns how many bytes were made.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, Fault> {
        let unpacker = match &mut self.0 {
            Some(unpacker) => unpacker,
            none => none.insert(Decompressor::new().map_err(|error| error.to_string())?),
        };
        unpacker.decompress_to_buffer(input, out).map_err(|error| {
            Fault::damaged(format!(
                "its zstd frame does not decode to {} bytes: {error}",
                out.len()
            ))
        })
    }
}
