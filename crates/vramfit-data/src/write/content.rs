//! The content of a file to write: datasets with their shapes and filters, attributes, and by the paths
//! of the datasets its groups.

use vramfit_base::{Bytes, Error, Result};

use super::number::Number;
use super::value::Attribute;
use crate::hdf5::dataspace::checked_product;

/// How chunks are compressed. Bytes of equal significance are grouped first, by HDF5's shuffle filter:
/// it costs little and makes numbers compress better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// HDF5's own filter, which every installation can read; levels 1 to 12.
    Gzip(u8),
    /// Zstandard, as `hdf5plugin` reads it; quicker to write and to read.
    Zstd(i32),
}

/// How a dataset's rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One row after the other.
    Contiguous,
    /// So many rows in a chunk, each row whole.
    Chunked {
        /// Rows in a chunk.
        rows: u64,
        /// How each chunk is compressed.
        compression: Compression,
    },
}

/// A dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// Its name with the groups it is in, such as `train/images`.
    pub path: String,
    /// What an element is.
    pub number: Number,
    /// Its dimensions; the first one counts rows.
    pub shape: Vec<u64>,
    /// How its rows are stored.
    pub storage: Storage,
}

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The datasets, with the groups that their paths name.
    pub datasets: Vec<Dataset>,
    /// Attributes of the file itself.
    pub attributes: Vec<Attribute>,
}

impl Dataset {
    /// Returns a dataset.
    pub fn new(path: &str, number: Number, shape: Vec<u64>, storage: Storage) -> Self {
        Dataset { path: path.into(), number, shape, storage }
    }

    /// Returns how many rows a chunk has; `None` in contiguous storage.
    pub(crate) fn chunk_rows(&self) -> Option<u64> {
        match self.storage {
            Storage::Contiguous => None,
            Storage::Chunked { rows, .. } => Some(rows),
        }
    }

    /// Returns the lengths of a chunk, of which none may be zero.
    pub(crate) fn chunk(&self) -> Option<Vec<u64>> {
        let rows = self.chunk_rows()?;
        let rest = self.shape[1..].iter().map(|&length| length.max(1));
        Some(std::iter::once(rows).chain(rest).collect())
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Returns the bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.shape[1..].iter().product::<u64>() * self.number.size() as u64
    }

    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.rows() * self.row_bytes()
    }

    /// Returns how many chunks there are; none in contiguous storage.
    pub fn chunks(&self) -> u64 {
        self.chunk_rows().map_or(0, |rows| self.rows().div_ceil(rows))
    }

    /// Rejects what HDF5 or this writer cannot store.
    fn check(&self) -> Result<()> {
        let refuse = |why: String| {
            Err(Error::invalid_argument(format!(
                "dataset `{}` cannot be written: {why}",
                self.path
            )))
        };
        if self.path.split('/').any(str::is_empty) {
            return refuse("its path has an empty component".into());
        }
        if self.path.split('/').any(|name| name.len() > 255) {
            return refuse("its name is longer than 255 bytes".into());
        }
        if self.shape.is_empty() || self.shape.len() > 32 {
            return refuse(format!("it has {} dimensions", self.shape.len()));
        }
        let bytes = checked_product(self.number.size() as u64, &self.shape);
        if bytes.is_none_or(|bytes| bytes > 1 << 60) {
            return refuse("its size exceeds the limit of 2^60 bytes".into());
        }
        if let Some(rows) = self.chunk_rows() {
            let limit = u64::from(u32::MAX);
            let chunk = rows.saturating_mul(self.row_bytes());
            if rows == 0 || rows > self.rows().max(1) {
                return refuse(format!(
                    "chunks of {rows} rows do not fit its {} rows",
                    self.rows()
                ));
            }
            if chunk > limit || self.shape[1..].iter().any(|&n| n > limit) {
                return Err(Error::invalid_argument(format!(
                        "a chunk of {rows} rows of `{}` has {}, but HDF5 limits chunks to less than 4.0 GiB",
                        self.path,
                        Bytes(chunk)
                    ),
                )
                .hint("use fewer rows per chunk"));
            }
        }
        Ok(())
    }
}

impl Content {
    /// Rejects content that cannot be written.
    ///
    /// # Errors
    /// `invalid-argument`, naming the dataset.
    pub(super) fn check(&self) -> Result<()> {
        self.datasets.iter().try_for_each(Dataset::check)?;
        let mut paths: Vec<&str> = self.datasets.iter().map(|one| &*one.path).collect();
        // With a slash behind each, what is below a path follows it immediately.
        paths.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        for pair in paths.windows(2) {
            let below = pair[1].strip_prefix(pair[0]);
            if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                return Err(Error::invalid_argument(format!(
                    "two datasets have the same name `{}`",
                    pair[1]
                )));
            }
        }
        Ok(())
    }
}
