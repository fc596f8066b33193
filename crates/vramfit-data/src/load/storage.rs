//! How the datasets of a loader are stored, and what reading them needs.

use super::columns::{Column, Columns};
use crate::order::Storage;
use crate::read;

/// Contiguous rows are read in pieces of this size, which is the scratch memory of a thread.
const CONTIGUOUS_SCRATCH: u64 = 1 << 20;

/// Chunks of different datasets are aligned up to this many rows.
const MAX_COMMON_BAND: u64 = 1 << 20;

/// Returns how the rows of all columns are stored.
pub(super) fn storage(columns: &Columns) -> Storage {
    let columns = columns.columns.iter();
    let bands = columns.filter_map(|column| band(column.rows().dataset()));
    let common = bands.reduce(|one, other| {
        let least = other / greatest_common_divisor(other, one);
        match least.checked_mul(one) {
            Some(least) if least <= MAX_COMMON_BAND => least,
            _ => one.max(other),
        }
    });
    common.map_or(Storage::Contiguous, |band_rows| Storage::Chunked { band_rows })
}

/// Returns how many rows of a dataset must be read together.
fn band(dataset: &read::Dataset) -> Option<u64> {
    match dataset.storage() {
        read::Storage::Compact(_) | read::Storage::Contiguous(_) => None,
        read::Storage::Chunked { grid, .. } => Some(grid.chunk[0].min(dataset.shape()[0]).max(1)),
        read::Storage::Virtual(pieces) => {
            pieces.iter().filter_map(|piece| band(&piece.dataset)).max()
        }
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Returns the bytes that a thread needs to decode a row of all columns.
pub(super) fn scratch_bytes(columns: &Columns, uses_windows: bool) -> u64 {
    let columns = columns.columns.iter();
    columns.map(|column| column_scratch_bytes(column, uses_windows)).sum()
}

/// Returns the bytes that a thread needs to decode a column, whose rows are read into blocks of windows or
/// one by one.
fn column_scratch_bytes(column: &Column, uses_windows: bool) -> u64 {
    fn dataset_scratch_bytes(dataset: &read::Dataset, is_in_place: bool) -> u64 {
        match dataset.storage() {
            read::Storage::Compact(_) => 0,
            read::Storage::Contiguous(_) if is_in_place => 0,
            read::Storage::Contiguous(_) => {
                let row = dataset.bytes() / dataset.shape()[0].max(1);
                CONTIGUOUS_SCRATCH.max(row).min(dataset.bytes())
            }
            read::Storage::Chunked { grid, table, .. } => {
                let stored = table.iter().map(|chunk| chunk.size).max().unwrap_or(0);
                // What is stored, what it becomes, and what is between two filters.
                stored.saturating_add(grid.chunk_bytes.saturating_mul(2))
            }
            read::Storage::Virtual(pieces) => {
                // Each piece has a reader of its own.
                let pieces = pieces.iter();
                pieces.map(|piece| dataset_scratch_bytes(&piece.dataset, is_in_place)).sum()
            }
        }
    }
    let rows = column.rows();
    dataset_scratch_bytes(rows.dataset(), uses_windows && rows.is_unchanged())
}

pub(super) fn stored_bytes(columns: &Columns) -> u64 {
    let bytes = columns.columns.iter();
    bytes.map(|c| c.rows().dataset().stored_bytes()).sum()
}
