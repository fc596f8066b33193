//! Putting the rows of a sample where they belong, with padding around them.

use std::ops::Range;

use vramfit_base::Result;

use super::columns::Columns;
use crate::sample::{Padding, Span};

/// Returns where in a sample the rows that are read go, as rows of it.
fn target(span: &Span) -> Range<usize> {
    match span.real.is_empty() {
        // One row that is repeated, or none.
        true => 0..(span.rows.end - span.rows.start) as usize,
        false => span.real.start as usize..span.real.end as usize,
    }
}

/// Writes the padding of a sample whose other rows are there.
fn pad(span: &Span, padding: Padding, row_bytes: usize, out: &mut [u8]) {
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

/// Fills a column with samples, one after another: `read` puts the rows of each where they belong, and padding is put
/// around them.
///
/// # Errors
/// Those of `read`.
pub(super) fn fill_samples(
    columns: &Columns,
    column: usize,
    samples: &[u64],
    out: &mut [u8],
    mut read: impl FnMut(usize, Range<u64>, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let form = &columns.columns[column];
    let row_bytes = form.row_bytes();
    let places = out.chunks_exact_mut(form.sample_bytes());
    for (place, (sample, out)) in samples.iter().zip(places).enumerate() {
        let span = columns.samples.span(*sample, column);
        let to = target(&span);
        read(place, span.rows.clone(), &mut out[to.start * row_bytes..to.end * row_bytes])?;
        pad(&span, columns.samples.padding(), row_bytes, out);
    }
    Ok(())
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
