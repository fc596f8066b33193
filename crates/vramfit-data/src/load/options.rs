//! What a loader reads.

use std::path::PathBuf;

use vramfit_base::Bytes;

use super::normalization::Normalization;
use crate::hdf5::Scalar;
use crate::order::{Fold, RemainderPolicy, ShardOptions, SplitMode};
use crate::sample::{RowRanges, SampleOptions};

/// A dataset to read.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnOptions {
    /// Its path in the file, with the field if its elements are records: `points[x]`. `data/*/obs` is the dataset `obs`
    /// of every group in `data`; their rows follow each other.
    pub name: String,
    /// The type to convert it to, instead of what the file and [`LoaderOptions`] say.
    pub to: Option<Scalar>,
    /// Whether its rows are on the last axis, as in files of MATLAB.
    pub is_last_axis: bool,
    /// Rows from where a sample is to the first one that it has of this column.
    pub shift: i64,
    /// Rows of a window, instead of what [`SampleOptions`] says.
    pub length: Option<u64>,
    /// Whether it has one row for each ragged sample.
    pub per_sample: bool,
    /// How its numbers are normalized, once they were converted.
    pub normalization: Option<Normalization>,
    /// Whether its elements are text or bytes, which are handed out as they are.
    pub as_bytes: bool,
}

impl ColumnOptions {
    /// Whether two columns have the same rows of the same dataset.
    pub(super) fn is_same(&self, other: &ColumnOptions) -> bool {
        self.name == other.name
            && self.is_last_axis == other.is_last_axis
            && (self.shift, self.length, self.to) == (other.shift, other.length, other.to)
            && self.normalization == other.normalization
    }
}

impl From<&str> for ColumnOptions {
    /// The dataset at a path, without conversion.
    fn from(name: &str) -> Self {
        ColumnOptions {
            name: name.to_owned(),
            to: None,
            is_last_axis: false,
            shift: 0,
            length: None,
            per_sample: false,
            normalization: None,
            as_bytes: false,
        }
    }
}

/// Which samples are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleSelection {
    /// Those with these numbers.
    Samples {
        /// The numbers.
        ranges: RowRanges,
        /// How many samples there must be, if the numbers are those of a mask.
        mask_length: Option<u64>,
    },
    /// Those of the groups with these names: what stands for the last wildcard of a path.
    Groups(Vec<String>),
}

/// One of the sets of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitSet {
    /// The training set.
    Train,
    /// The validation set.
    Validation,
    /// The test set.
    Test,
}

/// A split of samples into two or three sets, and which of them to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitOptions {
    /// Which set.
    pub set: SplitSet,
    /// The fraction of samples for validation, between 0 and 1.
    pub fraction: f64,
    /// The fraction of samples for tests; 0 for a split into two sets.
    pub test_fraction: f64,
    /// The fold that is for validation, instead of fractions.
    pub fold: Option<Fold>,
    /// How the samples of the other sets than the training set are chosen.
    pub mode: SplitMode,
    /// Whether all samples of a group, or of a file without wildcards, are in the same set. If not set, this is so
    /// unless samples are rows.
    pub by_group: Option<bool>,
    /// Seed of the choice. It is not the seed of the order, so that another order has the same sets.
    pub seed: u64,
}

impl SplitOptions {
    /// One set of a split into a training and a validation set.
    pub fn of_two(set: SplitSet, fraction: f64, mode: SplitMode, seed: u64) -> SplitOptions {
        SplitOptions { set, fraction, test_fraction: 0.0, fold: None, mode, by_group: None, seed }
    }
}

/// Everything that decides what a loader reads.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderOptions {
    /// The HDF5 files, directories of them, and patterns such as `shards/*.h5`. Their rows follow each other.
    pub files: Vec<PathBuf>,
    /// The datasets, which have the same number of rows in each group.
    pub columns: Vec<ColumnOptions>,
    /// What a sample is.
    pub samples: SampleOptions,
    /// Whether the datasets of a group may have different numbers of rows: samples that not all have are left out.
    pub trim: bool,
    /// Whether there are columns that say which rows of a sample are no padding.
    pub mask: bool,
    /// Samples of a batch, all processes together.
    pub batch_size: u64,
    /// Batches to stack along a new first axis; single batches have no such axis.
    pub stacked_batches: Option<u64>,
    /// Memory limit of the loader: windows, batches, decoding, the index of the chunks.
    pub budget: Bytes,
    /// Seed of the shuffle.
    pub seed: u64,
    /// Whether the samples are shuffled.
    pub shuffle: bool,
    /// What happens to the samples that do not fill the last batch.
    pub remainder: RemainderPolicy,
    /// Whether the last batch may have fewer samples: a batch is no larger than an epoch then, unless batches are stacked
    /// or shared by processes.
    pub is_partial: bool,
    /// Which samples; all if not set.
    pub selection: Option<SampleSelection>,
    /// Which set of them; all if not set.
    pub split: Option<SplitOptions>,
    /// A weight for each sample, with which samples are drawn with replacement; each comes once if not set. They are
    /// dropped when the loader is open.
    pub weights: Option<Vec<f64>>,
    /// Which shard of each batch this process reads.
    pub shard: ShardOptions,
    /// Reader threads. If not set, half of the processors, and the consumer's own thread while it waits.
    pub threads: Option<usize>,
    /// The type to convert all floats to, unless the column has one.
    pub float_type: Option<Scalar>,
    /// Whether 64-bit numbers become 32-bit numbers, as JAX would make them.
    pub narrow: bool,
    /// Whether values that are packed by the conventions of netCDF (CF) are unpacked.
    pub unpack: bool,
    /// Whether files that were not closed are read, whatever is missing in them.
    pub allow_unclosed: bool,
    /// The file that keeps what is known of files that have not changed, so that they are not opened to begin.
    pub index: Option<PathBuf>,
    /// Overwrites recycled memory, so that a test notices code that still reads it.
    pub poison: bool,
}

impl LoaderOptions {
    /// Shuffled epochs of all rows in batches of 256, in 256 MiB, by one process, without conversion.
    pub fn new<'d>(file: impl Into<PathBuf>, datasets: impl IntoIterator<Item = &'d str>) -> Self {
        LoaderOptions {
            files: vec![file.into()],
            samples: SampleOptions::Rows,
            trim: false,
            mask: false,
            selection: None,
            columns: datasets.into_iter().map(ColumnOptions::from).collect(),
            batch_size: 256,
            stacked_batches: None,
            budget: Bytes(256 << 20),
            seed: 0,
            shuffle: true,
            remainder: RemainderPolicy::Pad,
            is_partial: false,
            split: None,
            weights: None,
            shard: ShardOptions::SINGLE,
            threads: None,
            float_type: None,
            narrow: false,
            unpack: false,
            allow_unclosed: false,
            index: None,
            poison: false,
        }
    }
}
