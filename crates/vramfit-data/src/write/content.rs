//! What a file is going to hold: datasets with their shapes and filters, attributes, and by the paths
//! of the datasets its groups.

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::number::Number;

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text in UTF-8.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
}

/// A named value.
pub type Attribute = (String, Value);

/// How chunks are compressed. Bytes of equal weight are put together first, as HDF5's shuffle filter
/// does: it costs little and makes numbers compress better.
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
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Its name with the groups it is in, such as `train/images`.
    pub path: String,
    /// The type of its numbers.
    pub number: Number,
    /// Its dimensions; the first one counts rows.
    pub shape: Vec<u64>,
    /// How its rows are stored.
    pub storage: Storage,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The datasets.
    pub datasets: Vec<Dataset>,
    /// Attributes of the file itself.
    pub attributes: Vec<Attribute>,
}

impl Dataset {
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
        match self.storage {
            Storage::Contiguous => 0,
            Storage::Chunked { rows, .. } => self.rows().div_ceil(rows),
        }
    }

    /// Refuses what HDF5 or this writer cannot hold.
    fn check(&self) -> Result<()> {
        let refuse = |why: String| {
            Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("dataset `{}` cannot be written: {why}", self.path),
            ))
        };
        if self.path.split('/').any(str::is_empty) {
            return refuse("its name is empty, or a part of it is".into());
        }
        if self.path.split('/').any(|name| name.len() > 255) {
            return refuse("its name is longer than 255 bytes".into());
        }
        if self.shape.is_empty() || self.shape.len() > 32 {
            return refuse(format!("it has {} dimensions", self.shape.len()));
        }
        let bytes = self
            .shape
            .iter()
            .try_fold(self.number.size() as u64, |bytes, &n| bytes.checked_mul(n));
        if bytes.is_none_or(|bytes| bytes > 1 << 60) {
            return refuse("it has more bytes than a file can".into());
        }
        if self.shape.contains(&0) {
            return refuse("one of its dimensions is 0".into());
        }
        if let Storage::Chunked { rows, .. } = self.storage {
            let limit = u64::from(u32::MAX);
            let chunk = rows.saturating_mul(self.row_bytes());
            if rows == 0 || rows > self.rows() {
                return refuse(format!(
                    "a chunk of {rows} rows is more than its {} rows",
                    self.rows()
                ));
            }
            if chunk > limit || self.shape[1..].iter().any(|&n| n > limit) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!(
                        "a chunk of {rows} rows of `{}` has {}, and HDF5 allows less than 4.0 GiB",
                        self.path,
                        Bytes(chunk)
                    ),
                )
                .hint("take fewer rows in a chunk"));
            }
        }
        Ok(())
    }
}

impl Content {
    /// Refuses content that cannot be written.
    ///
    /// # Errors
    /// `invalid-argument`, naming the dataset.
    pub(super) fn check(&self) -> Result<()> {
        for (at, dataset) in self.datasets.iter().enumerate() {
            dataset.check()?;
            let taken = |other: &Dataset| {
                let (a, b) = (format!("{}/", other.path), format!("{}/", dataset.path));
                a.starts_with(&b) || b.starts_with(&a)
            };
            if self.datasets[..at].iter().any(taken) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("two datasets want the name `{}`", dataset.path),
                ));
            }
        }
        Ok(())
    }
}
