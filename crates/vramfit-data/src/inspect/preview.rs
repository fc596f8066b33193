//! The first rows of a dataset.

use serde::Serialize;
use vramfit_base::Result;

use super::sample::{Value, value};
use crate::read::RowReader;

/// Numbers of a row to return.
const MAX_SHOWN: usize = 64;
/// Read size.
const READ_BYTES: usize = 8 << 20;

/// The first rows of a dataset.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// Numbers in a row, returned or not.
    pub row_values: u64,
    /// For each row its first numbers, in the order of the file.
    pub rows: Vec<Vec<Value>>,
}

/// Reads the first numbers of the first `count` rows. `None` if a row is empty.
///
/// # Errors
///
/// As [`RowReader::read_starts`].
pub(super) fn preview(rows: &RowReader, count: u64) -> Result<Option<Preview>> {
    let row_bytes = rows.row_bytes();
    if row_bytes == 0 {
        return Ok(None);
    }
    let size = rows.scalar().size();
    let elements = MAX_SHOWN.div_ceil(rows.element_bytes() / size);
    let start_bytes = row_bytes.min(elements * rows.element_bytes());
    let count = count.min(rows.len());
    let rows_per_read = (READ_BYTES / start_bytes).max(1) as u64;
    let mut buffer = Vec::new();
    let mut shown = Vec::new();
    let mut next = 0;
    while next < count {
        let end = (next + rows_per_read).min(count);
        buffer.resize((end - next) as usize * start_bytes, 0);
        rows.read_starts(next..end, &mut buffer)?;
        for start in buffer.chunks_exact(start_bytes) {
            let numbers = start.chunks_exact(size).take(MAX_SHOWN);
            shown.push(numbers.map(|bytes| value(rows.scalar(), bytes)).collect());
        }
        next = end;
    }
    Ok(Some(Preview { row_values: (row_bytes / size) as u64, rows: shown }))
}
