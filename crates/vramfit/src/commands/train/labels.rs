//! Labels and tokens: how many different ones there are, and whether all of them are in range.
//!
//! All of them are read before training starts. A label that is out of range would make the loss NaN at some
//! step, perhaps hours later.

use std::collections::HashSet;
use std::path::Path;

use vramfit_analysis::{Error, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::read::{Dataset, RowOptions, RowReader};
use vramfit_train::Config;

/// Bytes of labels that are read at once.
const READ_BYTES: usize = 2 << 20;
/// Different labels that are counted; more are not.
const MAX_DISTINCT: usize = 1 << 16;
/// Up to this number, classes without a label cost next to nothing.
const CLASSES_THRESHOLD: u64 = 1000;
/// With this many times more classes than different labels, the largest label is probably a mistake.
const SPARSE_FACTOR: u64 = 10;

/// The terms for the integers of a dataset in messages.
struct Terms {
    one: &'static str,
    plural: &'static str,
    /// The key with their number.
    key: &'static str,
}

const LABELS: Terms = Terms { one: "label", plural: "classes", key: "data.classes" };

const TOKENS: Terms = Terms { one: "token", plural: "tokens", key: "data.vocabulary" };

/// The range of the labels, or tokens, of a dataset.
#[derive(Clone, Copy, Debug)]
struct Labels {
    min: Label,
    max: Label,
    /// Number of different ones, up to [`MAX_DISTINCT`].
    distinct: u64,
}

/// A label, and the first row with it.
#[derive(Clone, Copy, Debug)]
struct Label {
    value: i64,
    row: u64,
}

/// Returns the number of classes of a run: as configured, or one more than the largest label.
///
/// # Errors
/// `invalid-argument` when rows have several labels, when a label is out of range, or when the largest one is
/// probably a mistake.
pub(super) fn count_classes(config: &Config, row_shape: &[u64]) -> Result<u64> {
    let data = &config.data;
    if !matches!(row_shape, [] | [1]) {
        let message = format!(
            "labels must be one integer per row, but rows of `{}` have the shape {row_shape:?}",
            data.targets
        );
        return Err(Error::invalid_argument(message).hint(
            "store one label per row; for several of 0 and 1 set `training.loss` to `binary_cross_entropy`, for one-hot \
             rows to `cross_entropy`, for quantities to `mse`",
        ));
    }
    count(config, &data.targets, data.classes, &LABELS)
}

/// Returns the number of tokens of a run: as configured, or one more than the largest token.
///
/// # Errors
/// `invalid-argument` when a token is out of range, or when the largest one is probably a mistake.
pub(super) fn count_tokens(config: &Config) -> Result<u64> {
    count(config, &config.data.inputs, config.data.vocabulary, &TOKENS)
}

fn count(config: &Config, dataset: &str, given: Option<u64>, terms: &Terms) -> Result<u64> {
    let data = &config.data;
    let train = read(&data.path, dataset)?;
    let validation = match &data.validation_path {
        Some(path) => Some((path, read(path, dataset)?)),
        None => None,
    };
    let all = [Some((&data.path, train)), validation];
    let count = match given {
        Some(count) => count,
        None => {
            ensure_dense(&data.path, dataset, train, terms)?;
            // A negative label is an error below.
            u64::try_from(train.max.value).unwrap_or(0) + 1
        }
    };
    // Without rows there is no label.
    for (path, labels) in all.into_iter().flatten().filter(|(_, labels)| labels.distinct > 0) {
        for label in [labels.min, labels.max] {
            ensure_in_range(path, dataset, label, count, terms)?;
        }
    }
    Ok(count)
}

/// Ensures that a label is below a count, and not negative.
fn ensure_in_range(
    path: &Path,
    dataset: &str,
    label: Label,
    count: u64,
    terms: &Terms,
) -> Result<()> {
    let max = i64::from(i32::MAX);
    if (0..=max).contains(&label.value) && label.value.unsigned_abs() < count {
        return Ok(());
    }
    let Label { value, row } = label;
    let Terms { one, plural, key } = terms;
    let message = format!(
        "`{dataset}` of `{}` has the {one} {value} in row {row}, but the {count} {plural} are numbered from 0",
        path.display()
    );
    let error = Error::invalid_argument(message);
    Err(if value < 0 || value > max {
        error.hint(format!("store {one}s numbered from 0, or as floats if they are quantities"))
    } else {
        error.hint(format!("correct that row, or set `{key}` to at least {}", value + 1))
    })
}

/// Ensures that the model does not get far more outputs than there are different labels.
fn ensure_dense(path: &Path, dataset: &str, labels: Labels, terms: &Terms) -> Result<()> {
    let classes = u64::try_from(labels.max.value).unwrap_or(0) + 1;
    let is_exact = labels.distinct < MAX_DISTINCT as u64;
    if classes <= CLASSES_THRESHOLD || !is_exact || classes <= SPARSE_FACTOR * labels.distinct {
        return Ok(());
    }
    let Label { value, row } = labels.max;
    let Terms { one, plural, key } = terms;
    let message = format!(
        "`{dataset}` of `{}` has the {one} {value} in row {row}, but only {} different {one}s: a model of \
         {classes} {plural} is probably not intended",
        path.display(),
        labels.distinct
    );
    Err(Error::invalid_argument(message)
        .hint(format!("correct that row; or, if it is right, confirm it with `{key} = {classes}`")))
}

fn read(path: &Path, dataset: &str) -> Result<Labels> {
    let options = RowOptions { to: Some(Scalar::Int64), ..RowOptions::default() };
    let rows = RowReader::new(Dataset::open(path, dataset)?, &options)?;
    let mut labels = Labels {
        min: Label { value: i64::MAX, row: 0 },
        max: Label { value: i64::MIN, row: 0 },
        distinct: 0,
    };
    let mut seen = HashSet::new();
    let row_bytes = rows.row_bytes().max(8);
    let rows_at_once = (READ_BYTES / row_bytes).max(1) as u64;
    let mut start = 0;
    while start < rows.len() {
        let end = rows.len().min(start + rows_at_once);
        let mut bytes = vec![0; (end - start) as usize * rows.row_bytes()];
        rows.read(start..end, &mut bytes)?;
        for (index, label) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let value = i64::from_ne_bytes(*label);
            let row = start + (index * 8 / row_bytes) as u64;
            if value < labels.min.value {
                labels.min = Label { value, row };
            }
            if value > labels.max.value {
                labels.max = Label { value, row };
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
