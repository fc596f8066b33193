//! One chunk from numbers to stored bytes: shuffle, then compress, into buffers that are used again.

use libdeflater::{CompressionLvl, Compressor};
use vramfit_core::{Error, ErrorKind, Result};

use super::content::{Compression, Dataset, Storage};

/// Compresses the chunks of one dataset, on one thread.
pub(super) struct Pipeline {
    size: usize,
    chunk_bytes: usize,
    coder: Coder,
    shuffled: Vec<u8>,
}

enum Coder {
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
            Storage::Contiguous => (0, Compression::None),
            Storage::Chunked { rows, compression } => (rows, compression),
        };
        let refuse = |level: i64, name: &str, levels: &str| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("{level} is no level of {name}"),
            )
            .hint(format!("take one of {levels}"))
        };
        let coder = match compression {
            Compression::None => Coder::None,
            Compression::Gzip(level) => {
                let level = CompressionLvl::new(level.into())
                    .ok()
                    .filter(|_| (1..=12).contains(&level))
                    .ok_or_else(|| refuse(level.into(), "gzip", "1 (quick) to 12 (small)"))?;
                Coder::Gzip(Compressor::new(level))
            }
            Compression::Zstd(level) => {
                let levels = zstd::compression_level_range();
                let coder = levels
                    .contains(&level)
                    .then(|| zstd::bulk::Compressor::new(level).ok())
                    .flatten()
                    .ok_or_else(|| refuse(level.into(), "zstd", "1 (quick) to 22 (small)"))?;
                Coder::Zstd(coder)
            }
        };
        Ok(Pipeline {
            size: dataset.number.size(),
            chunk_bytes: (rows * dataset.row_bytes()) as usize,
            coder,
            shuffled: Vec::new(),
        })
    }

    /// Puts the stored form of `raw` into `stored`, whose memory is used again.
    ///
    /// Chunks at the edge have fewer rows; they are stored in full, the rest as zeros. Contiguous rows
    /// are swapped and not copied, so `raw` holds nothing of use afterwards.
    ///
    /// # Errors
    /// `internal` when the compression fails, which takes a bug.
    pub(super) fn store(&mut self, raw: &mut Vec<u8>, stored: &mut Vec<u8>) -> Result<()> {
        if self.chunk_bytes > 0 {
            raw.resize(self.chunk_bytes, 0);
        }
        let failed = |cause: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Internal, "a chunk could not be compressed").cause(cause)
        };
        match &mut self.coder {
            Coder::None => std::mem::swap(raw, stored),
            Coder::Gzip(coder) => {
                shuffle(raw, self.size, &mut self.shuffled);
                stored.resize(coder.zlib_compress_bound(raw.len()), 0);
                let bytes = coder
                    .zlib_compress(&self.shuffled, stored)
                    .map_err(|error| failed(&error))?;
                stored.truncate(bytes);
            }
            Coder::Zstd(coder) => {
                shuffle(raw, self.size, &mut self.shuffled);
                stored.resize(zstd::zstd_safe::compress_bound(raw.len()), 0);
                let bytes = coder
                    .compress_to_buffer(&self.shuffled, stored.as_mut_slice())
                    .map_err(|error| failed(&error))?;
                stored.truncate(bytes);
            }
        }
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
    for (byte, plane) in shuffled
        .chunks_exact_mut(count.max(1))
        .take(size)
        .enumerate()
    {
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
            (Compression::Gzip(0), "0 is no level of gzip"),
            (Compression::Gzip(13), "13 is no level of gzip"),
            (Compression::Zstd(23), "23 is no level of zstd"),
        ] {
            let dataset = Dataset {
                path: "x".into(),
                number: Number::F32,
                shape: vec![4],
                storage: Storage::Chunked {
                    rows: 2,
                    compression,
                },
                attributes: Vec::new(),
            };
            let error = Pipeline::new(&dataset).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert_eq!(error.message(), message);
        }
    }
}
