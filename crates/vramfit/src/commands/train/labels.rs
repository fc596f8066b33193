//! Labels: how many classes they have, and whether each of them is one.
//!
//! All of them are read before the training starts. A label that is no class makes the loss NaN at some
//! step, hours later perhaps, without a word about labels.

use std::collections::HashSet;
use std::path::Path;

use vramfit_core::train::Config;
use vramfit_core::{Error, ErrorKind, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::read::{Dataset, RowOptions, Rows};

/// Rows that are read at once.
const ROWS_AT_ONCE: u64 = 1 << 18;
/// Different labels that are counted; more are not told apart.
const MAX_DISTINCT: usize = 1 << 16;
/// Below so many classes, labels that do not occur cost nothing worth a question.
const MANY_CLASSES: u64 = 1000;
/// With so many more classes than labels that occur, the largest label is rather a mistake.
const SPARSE_FACTOR: u64 = 10;

/// What the labels of a dataset are.
#[derive(Clone, Copy, Debug)]
struct Labels {
    least: Label,
    most: Label,
    /// How many different ones there are, up to [`MAX_DISTINCT`].
    distinct: u64,
}

/// A label, and the first row that has it.
#[derive(Clone, Copy, Debug)]
struct Label {
    value: i64,
    row: u64,
}

/// Returns how many classes the labels of a run have: as many as its file says, or the largest label and one.
///
/// # Errors
/// `invalid-argument` when rows have several labels, when a label is no class, or when the largest one is so
/// far from all others that it has to be asked about.
pub(super) fn count_classes(config: &Config, row_shape: &[u64]) -> Result<u64> {
    let data = &config.data;
    if !matches!(row_shape, [] | [1]) {
        let message = format!(
            "labels are one whole number a row, and rows of `{}` have the shape {row_shape:?}",
            data.targets
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message)
            .hint("store what is to be predicted as floats, or one label a row"));
    }
    let train = read(&data.path, &data.targets)?;
    let validation = match &data.validation_path {
        Some(path) => Some((path, read(path, &data.targets)?)),
        None => None,
    };
    let all = [Some((&data.path, train)), validation];
    let classes = match data.classes {
        Some(classes) => classes,
        None => {
            ensure_dense(&data.path, &data.targets, train)?;
            // A label below 0 is refused below.
            u64::try_from(train.most.value).unwrap_or(0) + 1
        }
    };
    for (path, labels) in all.into_iter().flatten() {
        for label in [labels.least, labels.most] {
            ensure_class(path, &data.targets, label, classes)?;
        }
    }
    Ok(classes)
}

/// Refuses a label that is not one of so many classes, counted from 0.
fn ensure_class(path: &Path, dataset: &str, label: Label, classes: u64) -> Result<()> {
    let most = i64::from(i32::MAX);
    if (0..=most).contains(&label.value) && label.value.unsigned_abs() < classes {
        return Ok(());
    }
    let Label { value, row } = label;
    let message = format!(
        "`{dataset}` of `{}` has the label {value} in row {row}, and the {classes} classes are counted from 0",
        path.display()
    );
    let error = Error::new(ErrorKind::InvalidArgument, message);
    Err(if value < 0 || value > most {
        error.hint("store labels counted from 0, or as floats if they are quantities")
    } else {
        error.hint(format!(
            "correct that row, or set `data.classes` to {} at least",
            value + 1
        ))
    })
}

/// Asks about a largest label that would make a model of far more outputs than labels occur.
fn ensure_dense(path: &Path, dataset: &str, labels: Labels) -> Result<()> {
    let classes = u64::try_from(labels.most.value).unwrap_or(0) + 1;
    let is_counted = labels.distinct < MAX_DISTINCT as u64;
    if classes <= MANY_CLASSES || !is_counted || classes <= SPARSE_FACTOR * labels.distinct {
        return Ok(());
    }
    let Label { value, row } = labels.most;
    let message = format!(
        "`{dataset}` of `{}` has the label {value} in row {row}, and only {} different labels: a model of \
         {classes} classes may not be meant",
        path.display(),
        labels.distinct
    );
    Err(
        Error::new(ErrorKind::InvalidArgument, message).hint(format!(
            "correct that row; or, if it is right, say so with `data.classes = {classes}`"
        )),
    )
}

/// Reads the labels of a dataset.
fn read(path: &Path, dataset: &str) -> Result<Labels> {
    let options = RowOptions {
        to: Some(Scalar::Int64),
        ..RowOptions::default()
    };
    let rows = Rows::new(Dataset::open(path, dataset)?, &options)?;
    let mut labels = Labels {
        least: Label {
            value: i64::MAX,
            row: 0,
        },
        most: Label {
            value: i64::MIN,
            row: 0,
        },
        distinct: 0,
    };
    let mut seen = HashSet::new();
    let mut start = 0;
    while start < rows.len() {
        let end = rows.len().min(start + ROWS_AT_ONCE);
        let mut bytes = vec![0; (end - start) as usize * rows.row_bytes()];
        rows.read(start..end, &mut bytes)?;
        for (row, label) in (start..).zip(bytes.as_chunks::<8>().0) {
            let value = i64::from_ne_bytes(*label);
            if value < labels.least.value {
                labels.least = Label { value, row };
            }
            if value > labels.most.value {
                labels.most = Label { value, row };
            }
            if seen.len() < MAX_DISTINCT {
                seen.insert(value);
            }
        }
        start = end;
    }
    labels.distinct = seen.len() as u64;
    Ok(labels)
}
