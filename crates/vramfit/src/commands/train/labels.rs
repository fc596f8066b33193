//! Labels and tokens: how many different ones there are, and whether each is one of them.
//!
//! All of them are read before the training starts. A label that is no class makes the loss NaN at some
//! step, hours later perhaps, without a word about labels.

use std::collections::HashSet;
use std::path::Path;

use vramfit_core::train::Config;
use vramfit_core::{Error, ErrorKind, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::read::{Dataset, RowOptions, RowReader};

/// Bytes of labels that are read at once.
const PIECE: usize = 2 << 20;
/// Different labels that are counted; more are not told apart.
const MAX_DISTINCT: usize = 1 << 16;
/// Below so many classes, labels that do not occur cost nothing worth a question.
const CLASSES_THRESHOLD: u64 = 1000;
/// With so many more classes than labels that occur, the largest label is rather a mistake.
const SPARSE_FACTOR: u64 = 10;

/// What integers of a dataset are called.
struct Words {
    one: &'static str,
    /// All that there may be.
    all: &'static str,
    /// The key that says how many.
    key: &'static str,
}

const LABELS: Words = Words {
    one: "label",
    all: "classes",
    key: "data.classes",
};

const TOKENS: Words = Words {
    one: "token",
    all: "tokens",
    key: "data.vocabulary",
};

/// What the labels, or the tokens, of a dataset are.
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
    count(config, &data.targets, data.classes, &LABELS)
}

/// Returns how many different tokens the inputs of a run have: as many as its file says, or the largest and one.
///
/// # Errors
/// `invalid-argument` when a token is none of them, or when the largest one has to be asked about.
pub(super) fn count_tokens(config: &Config) -> Result<u64> {
    count(config, &config.data.inputs, config.data.vocabulary, &TOKENS)
}

fn count(config: &Config, dataset: &str, given: Option<u64>, words: &Words) -> Result<u64> {
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
            ensure_dense(&data.path, dataset, train, words)?;
            // A label below 0 is refused below.
            u64::try_from(train.most.value).unwrap_or(0) + 1
        }
    };
    for (path, labels) in all.into_iter().flatten() {
        for label in [labels.least, labels.most] {
            ensure_counted(path, dataset, label, count, words)?;
        }
    }
    Ok(count)
}

/// Refuses a label that is not one of so many, counted from 0.
fn ensure_counted(
    path: &Path,
    dataset: &str,
    label: Label,
    count: u64,
    words: &Words,
) -> Result<()> {
    let most = i64::from(i32::MAX);
    if (0..=most).contains(&label.value) && label.value.unsigned_abs() < count {
        return Ok(());
    }
    let Label { value, row } = label;
    let Words { one, all, key } = words;
    let message = format!(
        "`{dataset}` of `{}` has the {one} {value} in row {row}, and the {count} {all} are counted from 0",
        path.display()
    );
    let error = Error::new(ErrorKind::InvalidArgument, message);
    Err(if value < 0 || value > most {
        error.hint(format!(
            "store {one}s counted from 0, or as floats if they are quantities"
        ))
    } else {
        error.hint(format!(
            "correct that row, or set `{key}` to {} at least",
            value + 1
        ))
    })
}

/// Asks about a largest label that would make a model of far more outputs than labels occur.
fn ensure_dense(path: &Path, dataset: &str, labels: Labels, words: &Words) -> Result<()> {
    let classes = u64::try_from(labels.most.value).unwrap_or(0) + 1;
    let is_counted = labels.distinct < MAX_DISTINCT as u64;
    if classes <= CLASSES_THRESHOLD || !is_counted || classes <= SPARSE_FACTOR * labels.distinct {
        return Ok(());
    }
    let Label { value, row } = labels.most;
    let Words { one, all, key } = words;
    let message = format!(
        "`{dataset}` of `{}` has the {one} {value} in row {row}, and only {} different {one}s: a model of \
         {classes} {all} may not be meant",
        path.display(),
        labels.distinct
    );
    Err(
        Error::new(ErrorKind::InvalidArgument, message).hint(format!(
            "correct that row; or, if it is right, say so with `{key} = {classes}`"
        )),
    )
}

/// Reads the labels of a dataset.
fn read(path: &Path, dataset: &str) -> Result<Labels> {
    let options = RowOptions {
        to: Some(Scalar::Int64),
        ..RowOptions::default()
    };
    let rows = RowReader::new(Dataset::open(path, dataset)?, &options)?;
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
    let row_bytes = rows.row_bytes().max(8);
    let together = (PIECE / row_bytes).max(1) as u64;
    let mut start = 0;
    while start < rows.len() {
        let end = rows.len().min(start + together);
        let mut bytes = vec![0; (end - start) as usize * rows.row_bytes()];
        rows.read(start..end, &mut bytes)?;
        for (place, label) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let value = i64::from_ne_bytes(*label);
            let row = start + (place * 8 / row_bytes) as u64;
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
