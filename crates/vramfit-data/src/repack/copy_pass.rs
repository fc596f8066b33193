//! How many rows of a dataset are read at a time, so that memory is bounded and no chunk of the old file
//! is decoded more often than necessary.

use vramfit_core::{Bytes, Error, Result};

use crate::read::{Dataset as SourceDataset, Storage as Stored};
use crate::write::Dataset;

/// What is read at once where nothing asks for more.
const USUAL_BYTES: u64 = 8 << 20;

/// How the rows of one dataset are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyPass {
    /// Rows that are read, stored and written together.
    pub(super) rows: u64,
    /// How often a chunk of the old file is decoded, at most.
    pub(super) decodes: u64,
}

/// How the work is shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryPlan {
    /// Threads that read and compress.
    pub(super) threads: usize,
    /// Of each dataset.
    pub(super) passes: Vec<CopyPass>,
    /// What is in memory at most, but for what the parts of vramfit take themselves.
    pub(super) memory: Bytes,
}

/// What matters of a dataset and its old form.
struct Shape {
    row_bytes: u64,
    rows: u64,
    /// Rows that the new file has in a chunk; 1 where it has none.
    chunk_rows: u64,
    /// Rows that share chunks in the old file; 1 where it has none.
    band_rows: u64,
    /// What one thread needs beside the rows, to decode and to compress.
    scratch: u64,
}

/// Shares out the memory: as many threads as can work without reading anything twice, at least one.
///
/// # Errors
/// `invalid-argument` when not even one chunk fits.
pub(super) fn plan_memory(
    pairs: &[(&SourceDataset, &Dataset)],
    threads: usize,
    memory: Bytes,
) -> Result<MemoryPlan> {
    let shapes: Vec<Shape> = pairs.iter().map(|(open, dataset)| shape(open, dataset)).collect();
    let scratch = shapes.iter().map(|shape| shape.scratch).max().unwrap_or(0);
    let bytes_per_thread =
        |threads: u64| memory.0.saturating_sub(threads * scratch) / pieces_in_memory(threads);
    let suits = |threads: &usize| {
        let bytes = bytes_per_thread(*threads as u64);
        shapes.iter().all(|shape| shape.unit() * shape.row_bytes <= bytes)
    };
    let threads = (1..=threads.max(1)).rev().find(suits).unwrap_or(1);
    let most = bytes_per_thread(threads as u64);
    let mut passes = Vec::new();
    for (shape, (_, dataset)) in shapes.iter().zip(pairs) {
        let least = shape.chunk_rows * shape.row_bytes;
        if least > most {
            let needed = Bytes(least * pieces_in_memory(1) + scratch);
            return Err(Error::invalid_argument(format!(
                "the memory budget of {memory} is too small for the chunks of `/{}`, which have {}",
                dataset.path,
                Bytes(least)
            ))
            .hint(format!("use `--memory {}` or more", whole_mebibytes(needed))));
        }
        passes.push(shape.pass(most));
    }
    let largest = shapes.iter().zip(&passes);
    let largest = largest.map(|(shape, pass)| pass.rows.min(shape.rows) * shape.row_bytes);
    let largest = largest.max().unwrap_or(0);
    Ok(MemoryPlan {
        memory: Bytes(largest * pieces_in_memory(threads as u64) + threads as u64 * scratch),
        threads,
        passes,
    })
}

/// Returns what may be read at once by one thread in that memory, before it is known of what.
pub(super) fn bytes_per_thread(memory: Bytes) -> u64 {
    memory.0 / pieces_in_memory(1)
}

/// Returns how many pieces may be made and not written.
pub(super) fn max_pending(threads: usize) -> usize {
    threads + 1
}

/// Each thread reads one, and each that is pending is kept in its stored form.
fn pieces_in_memory(threads: u64) -> u64 {
    2 * threads + 1
}

fn whole_mebibytes(bytes: Bytes) -> String {
    format!("{}MiB", bytes.0.div_ceil(1 << 20))
}

fn shape(open: &SourceDataset, dataset: &Dataset) -> Shape {
    let (band_rows, decoded) = band(open);
    let chunk_rows = dataset.chunk_rows().unwrap_or(1);
    let row_bytes = dataset.row_bytes();
    Shape {
        row_bytes,
        rows: dataset.rows(),
        chunk_rows,
        band_rows,
        // Stored, decoded, and between two filters; and a chunk in the order that compresses best.
        scratch: 3 * decoded + chunk_rows * row_bytes,
    }
}

/// Returns how many rows share chunks, and how many bytes a chunk has that must be decoded as a whole.
fn band(open: &SourceDataset) -> (u64, u64) {
    match open.storage() {
        Stored::Compact(_) | Stored::Contiguous(_) => (1, 0),
        Stored::Chunked { grid, .. } => {
            let whole = !open.filters().is_empty();
            (grid.chunk[0], if whole { grid.chunk_bytes } else { 0 })
        }
        Stored::Virtual(pieces) => {
            let bands = pieces.iter().map(|piece| band(&piece.dataset));
            bands.fold((1, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)))
        }
    }
}

impl Shape {
    /// Returns the rows that are read together so that nothing is decoded twice, or hardly anything.
    fn unit(&self) -> u64 {
        let band = self.band_rows.min(self.rows.max(1));
        if band.is_multiple_of(self.chunk_rows) {
            return band;
        }
        // Borders of the one are within the other: what lies across a border is decoded twice. The larger
        // the stretch, the less that matters.
        (4 * band).next_multiple_of(self.chunk_rows)
    }

    fn pass(&self, most: u64) -> CopyPass {
        let row_bytes = self.row_bytes.max(1);
        let unit = self.unit();
        let usual = (USUAL_BYTES.min(most) / row_bytes / unit * unit).max(unit);
        let rows = match usual * row_bytes <= most {
            true => usual,
            false => (most / row_bytes / self.chunk_rows * self.chunk_rows).max(self.chunk_rows),
        };
        let band = self.band_rows.min(self.rows.max(1));
        let decodes = match rows.is_multiple_of(band) || rows >= self.rows {
            true => 1,
            // A band lies in as many stretches as fit into it, and one more at its border.
            false => band.div_ceil(rows) + 1,
        };
        CopyPass { rows, decodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(row_bytes: u64, rows: u64, chunk_rows: u64, band_rows: u64, most: u64) -> (u64, u64) {
        let shape = Shape { row_bytes, rows, chunk_rows, band_rows, scratch: 0 };
        let pass = shape.pass(most);
        assert!(pass.rows * row_bytes <= most);
        assert_eq!(pass.rows % chunk_rows, 0);
        (pass.rows, pass.decodes)
    }

    #[test]
    fn nothing_is_decoded_twice_where_borders_meet() {
        // Chunks of whole bands; bands of whole chunks; no chunks at all.
        assert_eq!(pass(1 << 10, 1 << 20, 512, 512, 64 << 20), (8192, 1));
        assert_eq!(pass(1 << 10, 1 << 20, 512, 1 << 14, 64 << 20), (1 << 14, 1));
        assert_eq!(pass(1 << 10, 1 << 20, 1, 1, 64 << 20), (8192, 1));
    }

    #[test]
    fn borders_that_do_not_meet_are_far_apart() {
        let (rows, decodes) = pass(256, 1_000_000, 2048, 15_625, 64 << 20);
        assert!(rows >= 4 * 15_625);
        assert_eq!(decodes, 2);
    }

    #[test]
    fn a_band_larger_than_memory_is_decoded_several_times() {
        // All rows share their chunks: 1 GB, of which 64 MB fit.
        assert_eq!(pass(1000, 1_000_000, 256, 1_000_000, 64_000_000), (64_000, 17));
    }
}
