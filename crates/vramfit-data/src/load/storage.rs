//! How the datasets of a loader are stored, and what reading them needs.

use serde::{Deserialize, Serialize};

use super::column_reader::ColumnReader;
use super::columns::Columns;
use crate::order::Storage;
use crate::read::{self, RowReader, VirtualSource};

/// Contiguous rows are read in pieces of this size, which is the scratch memory of a thread.
const CONTIGUOUS_SCRATCH: u64 = 1 << 20;

/// Chunks of different datasets are aligned up to this many rows.
const MAX_COMMON_BAND: u64 = 1 << 20;

/// How the rows of a column are stored, in several datasets together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ColumnStorage {
    /// Rows that must be read together, where rows are chunked.
    band: Option<u64>,
    is_chunked: bool,
    /// Bytes that a thread needs to decode rows into blocks of windows, and to decode them one by one.
    block_scratch: u64,
    row_scratch: u64,
    /// Bytes of the files that hold rows.
    stored_bytes: u64,
    /// Bytes that elements refer to.
    pub(super) object_bytes: u64,
}

impl ColumnStorage {
    /// Adds a dataset, and the bytes that its elements refer to.
    pub(super) fn add(&mut self, reader: &ColumnReader, object_bytes: u64) {
        let (rows, dataset) = (reader.rows(), reader.dataset());
        self.band = self.band.max(match rows.is_last_axis() {
            true => rows.rows_per_decode().map(|band| band.min(rows.len()).max(1)),
            false => band(dataset),
        });
        self.is_chunked |=
            matches!(dataset.storage(), read::Storage::Chunked { .. } | read::Storage::Virtual(_));
        let rescaling = reader.rescaling_bytes();
        let block_scratch = reader_scratch_bytes(rows, rows.is_unchanged()) + rescaling;
        self.block_scratch = self.block_scratch.max(block_scratch);
        self.row_scratch = self.row_scratch.max(reader_scratch_bytes(rows, false) + rescaling);
        self.stored_bytes += dataset.stored_bytes();
        self.object_bytes = self.object_bytes.saturating_add(object_bytes);
    }

    /// Whether datasets can be stored so.
    pub(super) fn is_possible(&self) -> bool {
        let bytes = [self.block_scratch, self.row_scratch, self.stored_bytes, self.object_bytes];
        bytes.iter().all(|bytes| *bytes <= 1 << 50) && self.band.is_none_or(|band| band > 0)
    }

    /// Adds other datasets.
    pub(super) fn merge(&mut self, other: ColumnStorage) {
        self.band = self.band.max(other.band);
        self.is_chunked |= other.is_chunked;
        self.block_scratch = self.block_scratch.max(other.block_scratch);
        self.row_scratch = self.row_scratch.max(other.row_scratch);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.object_bytes = self.object_bytes.saturating_add(other.object_bytes);
    }
}

/// Returns how the rows of all columns are stored.
pub(super) fn storage(columns: &Columns) -> Storage {
    let bands = columns.columns.iter().filter_map(|column| column.storage().band);
    let common = bands.reduce(|one, other| {
        let least = other / greatest_common_divisor(other, one);
        match least.checked_mul(one) {
            Some(least) if least <= MAX_COMMON_BAND => least,
            _ => one.max(other),
        }
    });
    let is_chunked = columns.columns.iter().any(|column| column.storage().is_chunked);
    common.map_or(Storage::Contiguous, |band_rows| match is_chunked {
        true => Storage::Chunked { band_rows },
        false => Storage::LastAxis { band_rows },
    })
}

/// Returns how many rows of a dataset must be read together.
fn band(dataset: &read::Dataset) -> Option<u64> {
    match dataset.storage() {
        read::Storage::Compact(_) | read::Storage::Contiguous(_) => None,
        read::Storage::Chunked { grid, .. } => Some(grid.chunk[0].min(dataset.shape()[0]).max(1)),
        read::Storage::Virtual(pieces) => {
            pieces.iter().filter_map(|piece| Some(piece.rows_of(band(&piece.dataset)?))).max()
        }
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Returns the bytes that a thread needs to decode rows of all columns, into blocks of windows or one by one.
pub(super) fn scratch_bytes(columns: &Columns, uses_windows: bool) -> u64 {
    let storage = columns.columns.iter().map(|column| column.storage());
    let bytes = storage.map(|storage| match uses_windows {
        true => storage.block_scratch,
        false => storage.row_scratch,
    });
    bytes.fold(0, u64::saturating_add)
}

/// Returns the bytes that a thread needs to decode rows of a dataset; `is_in_place` says whether rows that are stored
/// as they are wanted are read right to their place.
fn reader_scratch_bytes(rows: &RowReader, is_in_place: bool) -> u64 {
    let dataset = rows.dataset();
    let row = dataset.bytes() / rows.len().max(1);
    let lines = match rows.is_last_axis() {
        true => {
            read::last_axis_buffer_bytes(dataset.storage(), dataset.datatype().size() as u64, row)
        }
        false => 0,
    };
    match dataset.storage() {
        read::Storage::Contiguous(_) if rows.is_last_axis() => {
            lines.min(dataset.bytes().saturating_mul(2))
        }
        read::Storage::Contiguous(_) if is_in_place => 0,
        read::Storage::Contiguous(_) => CONTIGUOUS_SCRATCH.max(row).min(dataset.bytes()),
        read::Storage::Compact(_) => lines,
        read::Storage::Chunked { grid, table, .. } => {
            let stored = table.iter().map(|chunk| chunk.size).max().unwrap_or(0);
            // What is stored, what it becomes, and what is between two filters.
            stored.saturating_add(grid.chunk_bytes.saturating_mul(2)).saturating_add(lines)
        }
        read::Storage::Virtual(pieces) => {
            // Readers of pieces share the memory to decode in, and a thread reads one after the other.
            let buffer = pieces.iter().map(VirtualSource::buffer_bytes).max().unwrap_or(0);
            let pieces = rows.pieces().iter();
            let each = pieces.map(|piece| reader_scratch_bytes(piece, is_in_place));
            each.max().unwrap_or(0).saturating_add(buffer)
        }
    }
}

pub(super) fn stored_bytes(columns: &Columns) -> u64 {
    let bytes = columns.columns.iter().map(|column| column.storage().stored_bytes);
    bytes.fold(0, u64::saturating_add)
}
