//! Deflate with zlib's frame: `gzip` in h5py.

use libdeflater::{DecompressionError, Decompressor};

use super::DecodeError;

/// A decompressor, which is large and is kept.
#[derive(Default)]
pub(super) struct DeflateDecoder(Option<Decompressor>);

impl DeflateDecoder {
    /// Decompresses and returns how many bytes were made.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let deflate = self.0.get_or_insert_with(Decompressor::new);
        deflate.zlib_decompress(input, out).map_err(|error| {
            DecodeError::damaged(match error {
                DecompressionError::BadData => "its deflate stream is damaged".to_owned(),
                DecompressionError::InsufficientSpace => {
                    format!("its deflate stream decodes to more than {} bytes", out.len())
                }
            })
        })
    }
}
