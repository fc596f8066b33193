//! Putting the rows of a sample where they belong, with padding around them.

use std::ops::Range;

use super::columns::Columns;
use crate::sample::{Padding, Span};

/// Returns where in a sample the rows that are read go, as rows of it.
pub(super) fn target(span: &Span) -> Range<usize> {
    match span.real.is_empty() {
        // One row that is repeated, or none.
        true => 0..(span.rows.end - span.rows.start) as usize,
        false => span.real.start as usize..span.real.end as usize,
    }
}

/// Writes the padding of a sample whose other rows are there.
pub(super) fn pad(span: &Span, padding: Padding, row_bytes: usize, out: &mut [u8]) {
    let there = target(span);
    let (start, end) = (there.start * row_bytes, there.end * row_bytes);
    if start == 0 && end == out.len() {
        return;
    }
    if padding != Padding::Repeat || there.is_empty() {
        out[..start].fill(0);
        out[end..].fill(0);
        return;
    }
    let (before, rest) = out.split_at_mut(start);
    let (rows, after) = rest.split_at_mut(end - start);
    let (first, last) = (&rows[..row_bytes], &rows[rows.len() - row_bytes..]);
    before.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(first));
    after.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(last));
}

/// Fills the columns of a batch that say something about its samples.
pub(super) fn fill_derived<'o>(
    columns: &Columns,
    samples: &[u64],
    out: impl Iterator<Item = &'o mut [u8]>,
) {
    for (column, out) in columns.derived.iter().zip(out) {
        let each = out.chunks_exact_mut(column.sample_bytes());
        for (sample, out) in samples.iter().zip(each) {
            column.fill(&columns.samples, *sample, out);
        }
    }
}
