//! The first rows of a dataset, to look at.

use serde::{Serialize, Serializer};
use vramfit_core::Result;

use super::sample::{Value, value};
use crate::read::Rows;

/// Numbers that are shown of a row.
const MAX_SHOWN: usize = 64;
/// Larger rows are not read for it.
const MAX_ROW_BYTES: usize = 1 << 30;

/// The first rows of a dataset.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// Numbers in a row, shown or not.
    pub row_values: u64,
    /// For each row its first numbers, in the order of the file.
    pub rows: Vec<Vec<Shown>>,
}

/// One number. In JSON what is not finite is a text: `"NaN"`, `"Infinity"`, `"-Infinity"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown {
    /// An integer or a truth value.
    Integer(i128),
    /// A floating-point number.
    Real(f64),
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match *self {
            Shown::Integer(integer) => integer.serialize(serializer),
            Shown::Real(real) if real.is_finite() => real.serialize(serializer),
            Shown::Real(real) if real.is_nan() => "NaN".serialize(serializer),
            Shown::Real(real) if real > 0.0 => "Infinity".serialize(serializer),
            Shown::Real(_) => "-Infinity".serialize(serializer),
        }
    }
}

/// Reads the first `wanted` rows, or all where there are fewer. `None` where a row holds nothing or is
/// too large to be read for a look.
///
/// # Errors
///
/// As [`Rows::gather`].
pub(super) fn preview(rows: &Rows, wanted: u64) -> Result<Option<Preview>> {
    let row_bytes = rows.row_bytes();
    if row_bytes == 0 || row_bytes > MAX_ROW_BYTES {
        return Ok(None);
    }
    let size = rows.scalar().size();
    let mut buffer = vec![0; row_bytes];
    let mut shown = Vec::new();
    for row in 0..wanted.min(rows.len()) {
        rows.gather(&[row], &mut buffer)?;
        let numbers = buffer.chunks_exact(size).take(MAX_SHOWN);
        let numbers = numbers.map(|bytes| match value(rows.scalar(), bytes) {
            Value::Integer(integer) => Shown::Integer(integer),
            Value::Real(real) => Shown::Real(real),
        });
        shown.push(numbers.collect());
    }
    Ok(Some(Preview {
        row_values: (row_bytes / size) as u64,
        rows: shown,
    }))
}
