//! One chunk from numbers to stored bytes: shuffle, then compress, into buffers that are used again.

use libdeflater::{CompressionLvl, Compressor};
use vramfit_base::{Error, ErrorKind, Result};

use super::content::{Compression, Dataset, Storage};

/// A stretch of rows of one dataset as the file is to have it.
#[derive(Debug, Default)]
pub(super) struct EncodedChunk {
    /// The chunks one after the other, or the rows where there are none.
    pub(super) bytes: Vec<u8>,
    /// The size of each chunk.
    pub(super) chunks: Vec<u32>,
}

/// Compresses the chunks of one dataset, on one thread.
pub(super) struct Pipeline {
    size: usize,
    /// Bytes of a chunk; none where rows are stored one after the other.
    chunk_bytes: Option<usize>,
    coder: Encoder,
    shuffled: Vec<u8>,
}

enum Encoder {
    None,
    Gzip(Compressor),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Pipeline {
    /// Returns the pipeline of a dataset.
    ///
    /// # Errors
    /// `invalid-argument` when the level is none of the compression's.
    pub(super) fn new(dataset: &Dataset) -> Result<Self> {
        let (rows, compression) = match dataset.storage {
            Storage::Contiguous => (None, Compression::None),
            Storage::Chunked { rows, compression } => (Some(rows), compression),
        };
        let refuse = |level: i64, name: &str, levels: &str| {
            Error::invalid_argument(format!("{level} is not a compression level of {name}"))
                .hint(format!("use a level of {levels}"))
        };
        let coder = match compression {
            Compression::None => Encoder::None,
            Compression::Gzip(level) => {
                let level = CompressionLvl::new(level.into())
                    .ok()
                    .filter(|_| (1..=12).contains(&level))
                    .ok_or_else(|| refuse(level.into(), "gzip", "1 (fastest) to 12 (smallest)"))?;
                Encoder::Gzip(Compressor::new(level))
            }
            Compression::Zstd(level) => {
                let levels = zstd::compression_level_range();
                let coder = levels
                    .contains(&level)
                    .then(|| zstd::bulk::Compressor::new(level).ok())
                    .flatten()
                    .ok_or_else(|| refuse(level.into(), "zstd", "1 (fastest) to 22 (smallest)"))?;
                Encoder::Zstd(coder)
            }
        };
        Ok(Pipeline {
            size: dataset.number.size(),
            chunk_bytes: rows.map(|rows| (rows * dataset.row_bytes()) as usize),
            coder,
            shuffled: Vec::new(),
        })
    }

    /// Puts the stored form of `raw` into `stored`, whose memory is used again.
    ///
    /// `raw` begins with a chunk. Chunks at the edge have fewer rows; they are stored in full, the rest
    /// as zeros. What is not compressed is swapped and not copied, so `raw` holds nothing of use afterwards.
    ///
    /// # Errors
    /// `internal` when the compression fails, which takes a bug.
    pub(super) fn store(&mut self, raw: &mut Vec<u8>, stored: &mut EncodedChunk) -> Result<()> {
        stored.bytes.clear();
        stored.chunks.clear();
        if let Some(chunk_bytes) = self.chunk_bytes.filter(|&bytes| bytes > 0) {
            raw.resize(raw.len().next_multiple_of(chunk_bytes), 0);
            if !matches!(self.coder, Encoder::None) {
                for chunk in raw.chunks_exact(chunk_bytes) {
                    self.append(chunk, stored)?;
                }
                return Ok(());
            }
            let count = raw.len() / chunk_bytes;
            stored.chunks.resize(count, chunk_bytes as u32);
        }
        std::mem::swap(raw, &mut stored.bytes);
        Ok(())
    }

    fn append(&mut self, chunk: &[u8], stored: &mut EncodedChunk) -> Result<()> {
        let failed = |cause: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Internal, "a chunk could not be compressed").cause(cause)
        };
        shuffle(chunk, self.size, &mut self.shuffled);
        let chunk = &self.shuffled;
        let start = stored.bytes.len();
        let bound = match &mut self.coder {
            Encoder::None => chunk.len(),
            Encoder::Gzip(coder) => coder.zlib_compress_bound(chunk.len()),
            Encoder::Zstd(_) => zstd::zstd_safe::compress_bound(chunk.len()),
        };
        stored.bytes.resize(start + bound, 0);
        let room = &mut stored.bytes[start..];
        let bytes = match &mut self.coder {
            Encoder::None => {
                room.copy_from_slice(chunk);
                chunk.len()
            }
            Encoder::Gzip(coder) => {
                coder.zlib_compress(chunk, room).map_err(|error| failed(&error))?
            }
            Encoder::Zstd(coder) => {
                coder.compress_to_buffer(chunk, room).map_err(|error| failed(&error))?
            }
        };
        stored.bytes.truncate(start + bytes);
        stored.chunks.push(bytes as u32);
        Ok(())
    }
}

/// Puts first bytes of all numbers in front of all second bytes, and so on.
fn shuffle(raw: &[u8], size: usize, shuffled: &mut Vec<u8>) {
    shuffled.resize(raw.len(), 0);
    if size == 1 {
        shuffled.copy_from_slice(raw);
        return;
    }
    let count = raw.len() / size;
    // One pass for each byte: the reads stride, the writes do not, and compilers make vectors of it.
    for (byte, plane) in shuffled.chunks_exact_mut(count.max(1)).take(size).enumerate() {
        for (to, number) in plane.iter_mut().zip(raw.chunks_exact(size)) {
            *to = number[byte];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Number;

    #[test]
    fn bytes_of_equal_weight_are_put_together() {
        let mut shuffled = Vec::new();
        shuffle(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 4, &mut shuffled);
        assert_eq!(shuffled, [1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12]);
        shuffle(&[1, 2, 3], 1, &mut shuffled);
        assert_eq!(shuffled, [1, 2, 3]);
    }

    #[test]
    fn levels_that_are_none_are_refused() {
        for (compression, message) in [
            (Compression::Gzip(0), "0 is not a compression level of gzip"),
            (Compression::Gzip(13), "13 is not a compression level of gzip"),
            (Compression::Zstd(23), "23 is not a compression level of zstd"),
        ] {
            let storage = Storage::Chunked { rows: 2, compression };
            let dataset = Dataset::new("x", Number::F32, vec![4], storage);
            let error = Pipeline::new(&dataset).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.message(), message);
        }
    }
}
