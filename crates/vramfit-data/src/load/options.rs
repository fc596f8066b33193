//! What a loader reads.

use std::path::PathBuf;

use vramfit_base::Bytes;

use crate::hdf5::Scalar;
use crate::order::{RemainderPolicy, ShardOptions, SplitMode};

/// A dataset to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Its path in the file, with the field if its elements are records: `points[x]`.
    pub name: String,
    /// The type to convert it to, instead of what the file and [`LoaderOptions`] say.
    pub to: Option<Scalar>,
}

impl From<&str> for ColumnOptions {
    /// The dataset at a path, without conversion.
    fn from(name: &str) -> Self {
        ColumnOptions { name: name.to_owned(), to: None }
    }
}

/// One of the two sets of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSet {
    /// The training set.
    Train,
    /// The validation set.
    Validation,
}

/// A split of a file's rows into two sets, and which of them to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitOptions {
    /// Which set.
    pub set: SplitSet,
    /// The fraction of rows for validation, between 0 and 1.
    pub fraction: f64,
    /// How those rows are chosen.
    pub mode: SplitMode,
    /// Seed of the choice. It is not the seed of the order, so that another order has the same sets.
    pub seed: u64,
}

/// Everything that decides what a loader reads.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderOptions {
    /// The HDF5 file.
    pub file: PathBuf,
    /// The datasets, which have the same number of rows.
    pub columns: Vec<ColumnOptions>,
    /// Rows of a batch, all processes together.
    pub batch_size: u64,
    /// Batches to stack along a new first axis; single batches have no such axis.
    pub stacked_batches: Option<u64>,
    /// Memory limit of the loader: windows, batches, decoding, the index of the chunks.
    pub budget: Bytes,
    /// Seed of the shuffle.
    pub seed: u64,
    /// Whether the rows are shuffled.
    pub shuffle: bool,
    /// What happens to the rows that do not fill the last batch.
    pub remainder: RemainderPolicy,
    /// Which rows; all if not set.
    pub split: Option<SplitOptions>,
    /// Which shard of each batch this process reads.
    pub shard: ShardOptions,
    /// Reader threads. If not set, half of the processors, and the consumer's own thread while it waits.
    pub threads: Option<usize>,
    /// The type to convert all floats to, unless the column has one.
    pub float_type: Option<Scalar>,
    /// Whether 64-bit numbers become 32-bit numbers, as JAX would make them.
    pub narrow: bool,
    /// Overwrites recycled memory, so that a test notices code that still reads it.
    pub poison: bool,
}

impl LoaderOptions {
    /// Shuffled epochs of all rows in batches of 256, in 256 MiB, by one process, without conversion.
    pub fn new<'d>(file: impl Into<PathBuf>, datasets: impl IntoIterator<Item = &'d str>) -> Self {
        LoaderOptions {
            file: file.into(),
            columns: datasets.into_iter().map(ColumnOptions::from).collect(),
            batch_size: 256,
            stacked_batches: None,
            budget: Bytes(256 << 20),
            seed: 0,
            shuffle: true,
            remainder: RemainderPolicy::Pad,
            split: None,
            shard: ShardOptions::SINGLE,
            threads: None,
            float_type: None,
            narrow: false,
            poison: false,
        }
    }
}
