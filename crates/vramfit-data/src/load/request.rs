//! What a loader is asked for.

use std::path::PathBuf;

use vramfit_core::Bytes;

use crate::hdf5::Scalar;
use crate::order::{Last, Manner, World};

/// A dataset that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRequest {
    /// Its path in the file, and the field of its records where it has records: `points[x]`.
    pub name: String,
    /// What its numbers become, or what the file and [`Request::narrow`] say.
    pub to: Option<Scalar>,
}

impl From<&str> for ColumnRequest {
    /// The dataset at a path, as it is.
    fn from(name: &str) -> Self {
        ColumnRequest {
            name: name.to_owned(),
            to: None,
        }
    }
}

/// One of the two sets that a file's rows are divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// What is trained on.
    Train,
    /// What is validated on.
    Validation,
}

/// A part of a file's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartRequest {
    /// Which of the two sets.
    pub set: Set,
    /// The share of the rows that is kept for validation, between 0 and 1.
    pub share: f64,
    /// How those rows are chosen.
    pub manner: Manner,
    /// Decides which they are. It is not the seed of the order, so that another order has the same sets.
    pub seed: u64,
}

/// Everything that a loader is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The HDF5 file.
    pub file: PathBuf,
    /// The datasets, whose rows belong together.
    pub columns: Vec<ColumnRequest>,
    /// Rows of a batch, all processes together.
    pub batch_size: u64,
    /// Batches that are handed out together, stacked along a new first axis; one alone has no such axis.
    pub super_batch: Option<u64>,
    /// What the loader may take in all: pools, batches, what decoding needs, the index of the chunks.
    pub budget: Bytes,
    /// Decides the order.
    pub seed: u64,
    /// Whether the rows are shuffled.
    pub shuffle: bool,
    /// What becomes of the last batch.
    pub last: Last,
    /// Which rows, or all.
    pub part: Option<PartRequest>,
    /// Which of how many processes this is.
    pub world: World,
    /// Reader threads; or half of the processors, and the consumer's own thread while it waits.
    pub threads: Option<usize>,
    /// What floats become where nothing is said of their dataset, or what the file and `narrow` say.
    pub floats: Option<Scalar>,
    /// Whether numbers of 64 bits become those of 32, which is what JAX would do with them.
    pub narrow: bool,
    /// Fills memory with a pattern when it comes back, so that a test sees who still looks into it.
    pub poison: bool,
}

impl Request {
    /// Asks for shuffled epochs of all rows in batches of 256, in 256 MiB, by one process, with numbers as the file
    /// has them.
    pub fn of<'d>(file: impl Into<PathBuf>, datasets: impl IntoIterator<Item = &'d str>) -> Self {
        Request {
            file: file.into(),
            columns: datasets.into_iter().map(ColumnRequest::from).collect(),
            batch_size: 256,
            super_batch: None,
            budget: Bytes(256 << 20),
            seed: 0,
            shuffle: true,
            last: Last::Pad,
            part: None,
            world: World::ALONE,
            threads: None,
            floats: None,
            narrow: false,
            poison: false,
        }
    }
}
