//! Rows on the last axis of a dataset, as files of MATLAB have their samples: row `i` is `data[..., i]`.
//!
//! A *line* is what the last axis has at one place of the others, so that a row has one element of every line. Chunks (or pieces
//! of lines, of contiguous data) are decoded once for all rows of a band, and their elements put where they belong.

use std::ops::Range;

use vramfit_base::{Error, Result};

use super::chunk_rows::{Column, MAX_RUNS};
use super::dataset::Storage;
use super::row_reader::{BLOCK_BYTES, RowReader};
use super::runs::{Run, find_runs};
use crate::filter::{Scratch, grow_to};

/// Lines whose elements are moved together, and the bytes of them.
const TILE_LINES: usize = 32;
const TILE_BYTES: usize = 64 << 10;
/// Pieces of lines are read together with what is between them if that is at most a fourth of a piece, and this.
const COALESCE_GAP_BYTES: u64 = 16 << 10;
/// Of contiguous lines pieces of this size are read, unless the rows of a band would have more than the other size.
const PIECE_BYTES: u64 = 4 << 10;
const MAX_BAND_BYTES: u64 = 4 << 20;

/// Returns how many rows of contiguous data are read together, given the bytes of an element and of a row.
pub(super) fn contiguous_band_rows(element: u64, row: u64) -> u64 {
    let (element, row) = (element.max(1), row.max(1));
    (PIECE_BYTES / element).min(MAX_BAND_BYTES / row).max(1)
}

/// Returns the bytes of memory that reading needs besides that of decoding a chunk.
pub(crate) fn buffer_bytes(storage: &Storage, element: u64, row: u64) -> u64 {
    let tile = TILE_BYTES as u64 + 64 * TILE_LINES as u64;
    match storage {
        Storage::Contiguous(_) => {
            let piece = contiguous_band_rows(element, row).saturating_mul(element);
            tile + BLOCK_BYTES.max(piece)
        }
        _ => tile,
    }
}

/// Lines of decoded elements, one behind the other.
struct Lines<'a> {
    elements: &'a [u8],
    /// Elements of a line, and the row of the first of them.
    length: usize,
    first_row: u64,
}

impl RowReader {
    /// Reads rows of one band, sorted, each to its own place. Where a place is shorter than a row, the row's
    /// first elements are read.
    pub(super) fn gather_last_axis(
        &self,
        rows: &mut [(u64, &mut [u8])],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (Some(&(first, _)), Some(&(last, _))) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let all = self.len() as usize;
        let whole_row = Run { from: 0, to: 0, length: self.row_elements };
        match self.dataset.storage() {
            Storage::Compact(content) => {
                let lines = Lines { elements: content, length: all, first_row: 0 };
                self.place_lines(&lines, whole_row, rows)
            }
            Storage::Contiguous(Some(address)) => {
                self.gather_pieces_of_lines(*address, first..last + 1, rows, scratch)
            }
            Storage::Chunked { grid, .. } => {
                let axis = grid.chunk.len() - 1;
                let band = first / grid.chunk[axis];
                let chunk_rows = 0..grid.chunk[0];
                self.columns_of_last_axis(band, |column| {
                    let decoded = self.decode(column, &chunk_rows, scratch)?;
                    let Some(elements) = decoded else {
                        return rows.iter_mut().try_for_each(|(_, row)| self.fill_row(column, row));
                    };
                    let (length, first_row) = (grid.chunk[axis] as usize, band * grid.chunk[axis]);
                    let lines = Lines { elements, length, first_row };
                    column.runs.iter().try_for_each(|run| self.place_lines(&lines, *run, rows))
                })
            }
            Storage::Contiguous(None) | Storage::Virtual(_) => {
                rows.iter_mut().try_for_each(|(_, out)| self.fill(out))
            }
        }
    }

    /// Reads what rows have of contiguous lines.
    fn gather_pieces_of_lines(
        &self,
        address: u64,
        band: Range<u64>,
        rows: &mut [(u64, &mut [u8])],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let element = self.convert.stride as u64;
        let (line, piece) = (self.len() * element, (band.end - band.start) * element);
        let whole = self.row_elements as u64 * line;
        if let Some(elements) = self.source().view(address, whole)? {
            let lines = Lines { elements, length: self.len() as usize, first_row: 0 };
            let run = Run { from: 0, to: 0, length: self.row_elements };
            return self.place_lines(&lines, run, rows);
        }
        let is_near = line - piece <= COALESCE_GAP_BYTES.min(piece / 4);
        let at_once = (BLOCK_BYTES / if is_near { line } else { piece }).max(1) as usize;
        for begin in (0..self.row_elements).step_by(at_once) {
            let count = at_once.min(self.row_elements - begin);
            let start = address + begin as u64 * line + band.start * element;
            let buffer = scratch.parts().0;
            let (elements, length): (&[u8], u64) = if is_near {
                let bytes = (count as u64 - 1) * line + piece;
                let buffer = grow_to(buffer, bytes as usize);
                self.source().read_at(start, buffer)?;
                (buffer, self.len())
            } else {
                let buffer = grow_to(buffer, count * piece as usize);
                for (number, out) in buffer.chunks_exact_mut(piece as usize).enumerate() {
                    self.source().read_at(start + number as u64 * line, out)?;
                }
                (buffer, band.end - band.start)
            };
            let lines = Lines { elements, length: length as usize, first_row: band.start };
            self.place_lines(&lines, Run { from: 0, to: begin, length: count }, rows)?;
        }
        Ok(())
    }

    /// Puts the elements of a run of lines to their places in rows, which are sorted.
    fn place_lines(
        &self,
        lines: &Lines<'_>,
        run: Run,
        rows: &mut [(u64, &mut [u8])],
    ) -> Result<()> {
        let (stride, width) = (self.convert.stride, self.convert.width);
        let at_once = (TILE_BYTES / (TILE_LINES * width)).max(1) as u64;
        let line_bytes = (at_once as usize * width).min(lines.length * width);
        let mut tile = vec![0; TILE_LINES.min(run.length) * line_bytes];
        let mut rest = rows;
        while let Some(&(first, _)) = rest.first() {
            let count = rest.partition_point(|(row, _)| *row - first < at_once);
            let (here, behind) = rest.split_at_mut(count);
            rest = behind;
            let last = here.last().map_or(first, |(row, _)| *row);
            let length = (last - first + 1) as usize * width;
            for begin in (0..run.length).step_by(TILE_LINES) {
                let count = TILE_LINES.min(run.length - begin);
                for (number, out) in tile.chunks_exact_mut(length).take(count).enumerate() {
                    let line = (run.from + begin + number) * lines.length;
                    let element = line + (first - lines.first_row) as usize;
                    self.convert.run(&lines.elements[element * stride..], out)?;
                }
                for (row, out) in here.iter_mut() {
                    let start = ((run.to + begin) * width).min(out.len());
                    let end = ((run.to + begin + count) * width).min(out.len());
                    let from = &tile[(*row - first) as usize * width..];
                    collect(from, length, &mut out[start..end], width);
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with every chunk of a band of rows on the last axis.
    fn columns_of_last_axis(
        &self,
        band: u64,
        mut each: impl FnMut(&Column<'_>) -> Result<()>,
    ) -> Result<()> {
        let Storage::Chunked { grid, table, plain_edges } = self.dataset.storage() else {
            return Ok(());
        };
        let axis = grid.chunk.len() - 1;
        let (shape, chunk, lengths) =
            (&self.dataset.shape()[..axis], &grid.chunk[..axis], &grid.lengths[..axis]);
        if chunk.iter().product::<u64>() > MAX_RUNS {
            return Err(Error::unsupported_feature(
                "chunks that split a row into this many pieces are not supported",
            ));
        }
        let is_last_cut = (band + 1) * grid.chunk[axis] > self.len();
        for place in 0..lengths.iter().product::<u64>() {
            let mut origin = vec![0; axis];
            let mut rest = place;
            for (begin, (length, chunk)) in origin.iter_mut().zip(lengths.iter().zip(chunk)).rev() {
                *begin = rest % length * chunk;
                rest /= length;
            }
            let mut runs = Vec::new();
            find_runs(shape, chunk, &origin, &mut runs);
            let is_edge = is_last_cut
                || (origin.iter().zip(shape).zip(chunk))
                    .any(|((begin, length), chunk)| begin + chunk > *length);
            each(&Column {
                grid,
                chunk: table.find(place * grid.lengths[axis] + band),
                row_elements: grid.chunk[1..].iter().product::<u64>() as usize,
                is_whole: false,
                runs,
                is_plain: self.dataset.filters().is_empty() || *plain_edges && is_edge,
            })?;
        }
        Ok(())
    }
}

/// Collects one element of each line into `out`; lines are `distance` bytes apart.
fn collect(from: &[u8], distance: usize, out: &mut [u8], width: usize) {
    fn collect_of<const WIDTH: usize>(from: &[u8], distance: usize, out: &mut [u8]) {
        let (out, _) = out.as_chunks_mut::<WIDTH>();
        for (number, out) in out.iter_mut().enumerate() {
            out.copy_from_slice(&from[number * distance..][..WIDTH]);
        }
    }
    match width {
        1 => collect_of::<1>(from, distance, out),
        2 => collect_of::<2>(from, distance, out),
        4 => collect_of::<4>(from, distance, out),
        8 => collect_of::<8>(from, distance, out),
        width => {
            for (number, out) in out.chunks_exact_mut(width).enumerate() {
                out.copy_from_slice(&from[number * distance..][..width]);
            }
        }
    }
}
