//! Type, shape and storage of a dataset.

use serde::Serialize;
use vramfit_base::{Bytes, Error};

use super::preview::Preview;
use super::sample::Statistics;
use crate::filter;
use crate::hdf5::dataspace::checked_product;
use crate::hdf5::object::ObjectFinder;
use crate::hdf5::{DatasetSummary, Datatype};
use crate::read::{Dataset, RowOptions, RowReader, Storage};

/// A dataset, without its values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DatasetInfo {
    /// The type of its elements: NumPy's name for numbers, otherwise a description.
    pub dtype: String,
    /// Length of each axis; none for a single value.
    pub shape: Vec<u64>,
    /// How long each axis may become; null without limit.
    pub max_shape: Vec<Option<u64>>,
    /// How it is stored: `compact`, `contiguous`, `chunked` or `virtual`.
    pub layout: &'static str,
    /// Length of a chunk along each axis.
    pub chunk: Option<Vec<u64>>,
    /// Size of a chunk in memory.
    pub chunk_bytes: Option<Bytes>,
    /// How many chunks there are, and how many of them were never written.
    pub chunks: Option<u64>,
    /// How many chunks were never written and hold the fill value.
    pub chunks_unwritten: Option<u64>,
    /// The filters of each chunk, in the order of writing.
    pub filters: Vec<String>,
    /// Size of all elements in memory; strings of variable length are not counted.
    pub memory_bytes: Option<Bytes>,
    /// Size of all elements in the file; unknown if the chunk index could not be read.
    pub stored_bytes: Option<Bytes>,
    /// Statistics of the rows that were sampled.
    pub sample: Option<Statistics>,
    /// Its first rows, if requested.
    pub rows: Option<Preview>,
    /// Whether its rows are read as they are, without naming a field.
    #[serde(skip)]
    pub is_read: bool,
}

/// Why something cannot be read, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Why, in one clause.
    pub message: String,
    /// What would help, if that is known.
    pub hint: Option<String>,
}

impl Problem {
    /// `path` is named by the entry and left out here.
    pub(super) fn new(path: &str, error: &Error) -> Problem {
        let prefix = format!("dataset `{path}`: ");
        let message = error.message();
        Problem {
            message: message.strip_prefix(&prefix).unwrap_or(message).to_owned(),
            hint: error.hint_text().map(str::to_owned),
        }
    }
}

/// Returns information about a dataset, and a reader of its rows if they can be read.
pub(super) fn read(
    finder: &mut ObjectFinder,
    path: &str,
    summary: DatasetSummary,
) -> (DatasetInfo, Option<Problem>, Option<RowReader>) {
    let size = summary.datatype.size() as u64;
    let product = |lengths: &[u64]| checked_product(size, lengths).map(Bytes);
    let mut info = DatasetInfo {
        dtype: summary.datatype.describe(),
        memory_bytes: product(&summary.shape),
        chunk_bytes: summary.chunk.as_deref().and_then(product),
        max_shape: (summary.max_shape.iter())
            .map(|&length| (length != u64::MAX).then_some(length))
            .collect(),
        layout: summary.layout,
        filters: summary.filters.iter().map(filter::describe).collect(),
        shape: summary.shape,
        chunk: summary.chunk,
        ..DatasetInfo::default()
    };
    let dataset = match Dataset::find(finder, path) {
        Ok(dataset) => dataset,
        Err(error) => return (info, Some(Problem::new(path, &error)), None),
    };
    if info.shape != dataset.shape() {
        // Virtual datasets are as long as their sources are now.
        info.shape = dataset.shape().to_vec();
        info.memory_bytes = product(&info.shape);
    }
    info.stored_bytes = Some(Bytes(dataset.stored_bytes()));
    if let Storage::Chunked { grid, table, .. } = dataset.storage() {
        info.chunks = Some(grid.count);
        info.chunks_unwritten = Some(grid.count.saturating_sub(table.len()));
    }
    // A scalar, and a record whose fields can be read one by one, are not a problem.
    let is_record =
        matches!(dataset.datatype(), Datatype::Compound { fields, .. } if !fields.is_empty());
    if dataset.shape().is_empty() || is_record {
        return (info, None, None);
    }
    match RowReader::new(dataset, &RowOptions::default()) {
        Ok(rows) => {
            info.is_read = true;
            (info, None, Some(rows))
        }
        Err(error) => (info, Some(Problem::new(path, &error)), None),
    }
}
