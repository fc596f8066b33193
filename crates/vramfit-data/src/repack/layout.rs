//! How each dataset is to be stored so that it streams well: the rules, without a byte being read.

use std::collections::HashMap;

use vramfit_core::{Bytes, Error, Result};

use super::manifest::StreamedDataset;
use super::{Chunk, RepackOptions, Shuffle};
use crate::hdf5::FilterStep;
use crate::read::{Dataset as SourceDataset, MAX_CHUNK_BYTES, Storage as Stored};
use crate::write::{Compression, Dataset, Storage};

/// A chunk has no more bytes than this where nothing was said, and at least half of it where rows are small.
/// A disk reads such pieces in any order at half its speed or more, and a window of a shuffle holds many.
const CHUNK_BYTES: u64 = 512 << 10;
/// Where a row count has to divide another, chunks of these sizes are taken, too.
const FITTING_BYTES: std::ops::RangeInclusive<u64> = 256 << 10..=1 << 20;
/// Smaller chunks cost more to find than to read.
const TINY_CHUNK: u64 = 16 << 10;

/// Decides how datasets are stored, and explains deviations from the options.
pub(super) fn decide(
    options: &RepackOptions,
    sources: &[SourceDataset],
    datasets: &mut [StreamedDataset],
    band_bytes_at_once: u64,
) -> Result<Vec<Option<String>>> {
    let mut notes = vec![None; datasets.len()];
    // Of those with equally many rows the largest decides: what is read together has equal bands then.
    let mut groups: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, streamed) in datasets.iter().enumerate() {
        groups.entry(streamed.dataset.rows()).or_default().push(at);
    }
    for group in groups.values_mut() {
        group.sort_by_key(|&at| std::cmp::Reverse(datasets[at].dataset.bytes()));
        let all: u64 = group.iter().map(|&at| datasets[at].dataset.bytes()).sum();
        let mut rows = None;
        for &at in group.iter() {
            let source = &sources[at];
            let StreamedDataset { dataset, filters, .. } = &mut datasets[at];
            let compression = compression(options, source, filters);
            dataset.checksums = filters.iter().any(|step| step.id == id::FLETCHER32);
            dataset.shuffle = match options.shuffle {
                Shuffle::Auto => dataset.datatype.size > 1,
                Shuffle::Always => true,
                Shuffle::Never => false,
            };
            let wants_chunks =
                options.chunk != Chunk::Default || dataset.can_grow() || dataset.checksums;
            if compression == Compression::None && !wants_chunks {
                dataset.storage = Storage::Contiguous;
                continue;
            }
            let own = || chunk_rows(options, dataset, source, band_bytes_at_once);
            let rows = *rows.get_or_insert_with(own);
            let rows = rows.min(dataset.rows().max(1));
            let chunk_bytes = rows * dataset.row_bytes();
            let is_tiny = chunk_bytes < TINY_CHUNK && dataset.rows() > rows;
            if is_tiny && !wants_chunks && dataset.bytes() <= all / 8 {
                dataset.storage = Storage::Contiguous;
                notes[at] = Some(format!(
                    "without compression, because its chunks would have only {}",
                    Bytes(chunk_bytes)
                ));
                continue;
            }
            if compression == Compression::None && options.chunk == Chunk::Default {
                let reason = if dataset.can_grow() { "it can grow" } else { "it has checksums" };
                notes[at] = Some(format!("chunked, because {reason}"));
            }
            if chunk_bytes > MAX_CHUNK_BYTES {
                return Err(Error::invalid_argument(format!(
                    "a chunk of {rows} rows of `/{}` has {}, but the maximum is {}",
                    dataset.path,
                    Bytes(chunk_bytes),
                    Bytes(MAX_CHUNK_BYTES)
                ))
                .hint("use fewer rows per chunk, or `--compression none`"));
            }
            dataset.storage = Storage::Chunked { rows, compression };
        }
    }
    Ok(notes)
}

/// Returns how chunks are compressed: as was asked for, or as they are.
fn compression(
    options: &RepackOptions,
    source: &SourceDataset,
    filters: &[FilterStep],
) -> Compression {
    if let Some(compression) = options.compression {
        return compression;
    }
    let usual = |step: &FilterStep| match step.id {
        id::DEFLATE => {
            let level = step.parameters.first().map_or(4, |&level| level.clamp(1, 9));
            Some(Compression::Gzip(level as u8))
        }
        id::LZ4 => Some(Compression::Lz4),
        // Whoever reads Blosc or Bitshuffle has the plugin that reads Zstandard, too. Bitshuffle may only shuffle.
        id::ZSTD | id::BLOSC => Some(Compression::Zstd(3)),
        id::BITSHUFFLE if step.parameters.get(4).is_some_and(|&coder| coder > 0) => {
            Some(Compression::Zstd(3))
        }
        id::LZF | id::SCALE_OFFSET => Some(Compression::Gzip(4)),
        _ => None,
    };
    let own = filters.iter().find_map(usual);
    let any_filtered = match source.storage() {
        Stored::Virtual(pieces) => (pieces.iter()).any(|piece| !piece.dataset.filters().is_empty()),
        _ => false,
    };
    own.or(any_filtered.then_some(Compression::Gzip(4))).unwrap_or(Compression::None)
}

/// Filters by the numbers under which The HDF Group has registered them.
mod id {
    pub(super) const DEFLATE: u16 = 1;
    pub(super) const FLETCHER32: u16 = 3;
    pub(super) const SCALE_OFFSET: u16 = 6;
    pub(super) const LZF: u16 = 32000;
    pub(super) const BLOSC: u16 = 32001;
    pub(super) const LZ4: u16 = 32004;
    pub(super) const BITSHUFFLE: u16 = 32008;
    pub(super) const ZSTD: u16 = 32015;
}

/// Returns how many rows a chunk has.
fn chunk_rows(
    options: &RepackOptions,
    dataset: &Dataset,
    source: &SourceDataset,
    at_once: u64,
) -> u64 {
    let row_bytes = dataset.row_bytes().max(1);
    let bytes = match options.chunk {
        Chunk::Rows(rows) => return rows,
        Chunk::Bytes(bytes) => bytes.0,
        Chunk::Default => CHUNK_BYTES,
    };
    let usual = (bytes / row_bytes).max(1);
    // A power of two divides evenly into batches, and into every other one.
    let usual = 1 << usual.ilog2();
    let Stored::Chunked { grid, .. } = source.storage() else {
        return usual;
    };
    let band = grid.chunk[0];
    if options.chunk != Chunk::Default || band % usual == 0 || band * row_bytes <= at_once / 4 {
        return usual;
    }
    // Few of its bands fit into memory: where new chunks end with them, none is read a second time.
    let fitting = (FITTING_BYTES.start().div_ceil(row_bytes)..=FITTING_BYTES.end() / row_bytes)
        .filter(|rows| band % rows == 0);
    fitting.min_by_key(|rows| rows.abs_diff(usual)).unwrap_or(usual)
}
