//! Datasets with a series at each index of the first axis: trajectories × time × features.

use vramfit_base::{Error, Result};

use crate::read::Dataset;

/// More series are a mistake: those of one row each are samples of their own.
const MAX_SERIES: u64 = 1 << 20;

/// Returns how many series datasets have on their first axis.
///
/// # Errors
/// `invalid-argument` when one has no second axis, or they have different numbers of series.
pub(super) fn count_series(datasets: &[Dataset]) -> Result<u64> {
    if let Some(dataset) = datasets.iter().find(|dataset| dataset.shape().len() < 2) {
        return Err(Error::invalid_argument(format!(
            "dataset `{}` has shape {:?}, and windows along axis 1 are of datasets of two or more axes: series, rows",
            dataset.path(),
            dataset.shape()
        ))
        .hint("leave it out, or use windows along axis 0"));
    }
    let Some((first, others)) = datasets.split_first() else {
        return Ok(0);
    };
    let count = first.shape()[0];
    if let Some(other) = others.iter().find(|other| other.shape()[0] != count) {
        return Err(Error::invalid_argument(format!(
            "datasets must have the same number of series: `{}` has {count} on axis 0, but `{}` has {}",
            first.path(),
            other.path(),
            other.shape()[0]
        ))
        .hint("choose datasets of the same series"));
    }
    if count > MAX_SERIES {
        return Err(Error::invalid_argument(format!(
            "dataset `{}` has {count} series on axis 0, and at most {MAX_SERIES} of a file are read",
            first.path()
        ))
        .hint("divide it into several files, or read whole rows: `samples=Rows()`"));
    }
    Ok(count)
}
