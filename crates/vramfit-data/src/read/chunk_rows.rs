//! One band: reading its chunks, decoding them, and copying the elements to where they belong.

use std::ops::Range;

use vramfit_base::{Error, Result};

use super::dataset::{Dataset, Storage};
use super::row_reader::RowReader;
use super::runs::{Run, find_runs, run_start};
use crate::filter::{self, DecodeError, Scratch, grow_to};
use crate::hdf5::{Chunk, Grid};

/// Rows nearer to each other than this are read together with what is between them.
const COALESCE_GAP_BYTES: u64 = 16 << 10;
/// … but not more than this at once.
const MAX_BYTES: u64 = 1 << 20;

/// More elements in a chunk's share of a row than can be placed one by one. Shares that are whole rows
/// need not be.
pub(super) const MAX_RUNS: u64 = 1 << 22;

/// Which of the chunks of a band, and where it is.
pub(super) struct Column<'a> {
    pub(super) grid: &'a Grid,
    pub(super) chunk: Option<Chunk>,
    /// Elements of a row of the chunk, also where it reaches beyond the edge.
    pub(super) row_elements: usize,
    pub(super) runs: Vec<Run>,
    /// Whether a row of the chunk is a row of the dataset.
    pub(super) is_whole: bool,
    /// Whether it was stored without filters because it reaches beyond the edge.
    pub(super) is_plain: bool,
}

impl RowReader {
    /// Reads rows of one band.
    pub(super) fn read_chunk_rows(
        &self,
        rows: Range<u64>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let row_bytes = (self.row_elements * self.convert.stride) as u64;
        match self.dataset.storage() {
            _ if out.is_empty() => Ok(()),
            Storage::Compact(content) => {
                let start = (rows.start * row_bytes) as usize;
                self.convert.run(&content[start..], out)
            }
            // The pieces of a virtual dataset are read each by its own reader.
            Storage::Contiguous(None) | Storage::Virtual(_) => self.fill(out),
            Storage::Contiguous(Some(address)) => {
                let address = address + rows.start * row_bytes;
                if self.convert.is_copy() {
                    return self.source().read_at(address, out);
                }
                let length = (rows.end - rows.start) * row_bytes;
                let bytes = self.bytes(address, length, scratch.parts().0)?;
                self.convert.run(bytes, out)
            }
            Storage::Chunked { grid, .. } => {
                let band = rows.start / grid.chunk[0];
                let begin = band * grid.chunk[0];
                let local = rows.start - begin..rows.end - begin;
                self.columns(band, |column| {
                    if self.decode_in_place(column, &local, out, scratch)? {
                        return Ok(());
                    }
                    let decoded = self.decode(column, &local, scratch)?;
                    let Some(decoded) = decoded else {
                        return out
                            .chunks_exact_mut(self.row_bytes)
                            .try_for_each(|row| self.fill_row(column, row));
                    };
                    if column.is_whole {
                        return self.convert.run(decoded, out);
                    }
                    let chunk_rows =
                        decoded.chunks_exact(column.row_elements * self.convert.stride);
                    for (from, row) in chunk_rows.zip(out.chunks_exact_mut(self.row_bytes)) {
                        self.copy_row(column, from, row)?;
                    }
                    Ok(())
                })
            }
        }
    }

    /// Reads rows of one band, sorted, each to its own place. Where a place is shorter than a row, the row's
    /// first elements are read.
    pub(super) fn gather_chunk_rows(
        &self,
        rows: &mut [(u64, &mut [u8])],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let row_bytes = (self.row_elements * self.convert.stride) as u64;
        let (Some(&(first, _)), Some(&(last, _))) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        match self.dataset.storage() {
            Storage::Compact(content) => rows.iter_mut().try_for_each(|(row, out)| {
                self.convert.run(&content[(*row * row_bytes) as usize..], out)
            }),
            Storage::Contiguous(None) | Storage::Virtual(_) => {
                rows.iter_mut().try_for_each(|(_, out)| self.fill(out))
            }
            Storage::Contiguous(Some(address)) => {
                self.gather_contiguous(*address, row_bytes, rows, scratch)
            }
            Storage::Chunked { grid, .. } => {
                let band = first / grid.chunk[0];
                let begin = band * grid.chunk[0];
                let local = first - begin..last - begin + 1;
                let wanted = rows.iter().map(|(_, out)| out.len()).max().unwrap_or(0);
                self.columns(band, |column| {
                    // The first run is the one that begins first.
                    if column.runs[0].to * self.convert.width >= wanted {
                        return Ok(());
                    }
                    let decoded = self.decode(column, &local, scratch)?;
                    let length = column.row_elements * self.convert.stride;
                    rows.iter_mut().try_for_each(|(row, out)| match decoded {
                        Some(decoded) => {
                            let start = (*row - first) as usize * length;
                            self.copy_row(column, &decoded[start..start + length], out)
                        }
                        None => self.fill_row(column, out),
                    })
                })
            }
        }
    }

    /// Gathers rows from a mapped file, which needs no sorting. Returns `true` if it could.
    pub(super) fn gather_mapped<'o>(
        &self,
        rows: &[u64],
        places: impl Iterator<Item = &'o mut [u8]>,
    ) -> Result<bool> {
        let row_bytes = (self.row_elements * self.convert.stride) as u64;
        let Storage::Contiguous(Some(address)) = self.dataset.storage() else {
            return Ok(false);
        };
        let Some(all) = self.source().view(*address, self.len() * row_bytes)? else {
            return Ok(false);
        };
        for (row, out) in rows.iter().zip(places) {
            self.convert.run(&all[(row * row_bytes) as usize..], out)?;
        }
        Ok(true)
    }

    fn gather_contiguous(
        &self,
        address: u64,
        row_bytes: u64,
        rows: &mut [(u64, &mut [u8])],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut rest = rows;
        while let Some(&(first, _)) = rest.first() {
            let mut last = first;
            let together = rest.iter().take_while(|(row, _)| {
                let near = (row - last).saturating_sub(1) * row_bytes <= COALESCE_GAP_BYTES;
                let small = (row - first + 1) * row_bytes <= MAX_BYTES;
                last = *row;
                *row == first || near && small
            });
            let count = together.count();
            let (here, behind) = rest.split_at_mut(count);
            rest = behind;
            let last = here.last().map_or(first, |(row, _)| *row);
            let address = address + first * row_bytes;
            if let [(_, out)] = here
                && self.convert.is_copy()
            {
                self.source().read_at(address, out)?;
                continue;
            }
            let last_elements = here.last().map_or(0, |(_, out)| out.len() / self.convert.width);
            let last_bytes = (last_elements * self.convert.stride) as u64;
            let length = (last - first) * row_bytes + last_bytes;
            let bytes = self.bytes(address, length, scratch.parts().0)?;
            for (row, out) in here {
                self.convert.run(&bytes[((*row - first) * row_bytes) as usize..], out)?;
            }
        }
        Ok(())
    }

    /// Calls `each` with every chunk of a band.
    fn columns(&self, band: u64, mut each: impl FnMut(&Column<'_>) -> Result<()>) -> Result<()> {
        let Storage::Chunked { grid, table, plain_edges } = self.dataset.storage() else {
            return Ok(());
        };
        let (shape, chunk) = (self.dataset.shape(), &grid.chunk);
        let per_band: u64 = grid.lengths[1..].iter().product();
        let row_elements = chunk[1..].iter().product::<u64>() as usize;
        let is_whole = per_band == 1 && row_elements == self.row_elements;
        let mut runs = Vec::new();
        for place in 0..per_band {
            let origin = run_start(grid, place);
            runs.clear();
            if chunk[1..].iter().product::<u64>() > MAX_RUNS && !is_whole {
                return Err(Error::unsupported_feature(
                    "chunks that split a row into this many pieces are not supported",
                ));
            }
            find_runs(&shape[1..], &chunk[1..], &origin, &mut runs);
            let first_row = band * chunk[0];
            let is_edge = grid.is_at_edge()
                || first_row + chunk[0] > shape[0]
                || (origin.iter().zip(&shape[1..]).zip(&chunk[1..]))
                    .any(|((begin, length), chunk)| begin + chunk > *length);
            let column = Column {
                grid,
                chunk: table.find(band * per_band + place),
                row_elements,
                is_whole,
                runs: std::mem::take(&mut runs),
                is_plain: self.dataset.filters().is_empty() || *plain_edges && is_edge,
            };
            each(&column)?;
            runs = column.runs;
        }
        Ok(())
    }

    /// Decodes a chunk right into the caller's buffer, where it is exactly what is wanted there.
    fn decode_in_place(
        &self,
        column: &Column<'_>,
        rows: &Range<u64>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let Some(chunk) = column.chunk else {
            return Ok(false);
        };
        if !column.is_whole || !self.convert.is_copy() {
            return Ok(false);
        }
        if column.is_plain {
            self.check_plain(column, chunk)?;
            let row_bytes = (column.row_elements * self.convert.stride) as u64;
            let address = chunk.address + column.grid.start_in_chunk() + rows.start * row_bytes;
            return self.source().read_at(address, out).map(|()| true);
        }
        if out.len() as u64 != column.grid.chunk_bytes {
            return Ok(false);
        }
        let (stored, _, mut between) = scratch.parts();
        let stored = self.bytes(chunk.address, chunk.size, stored)?;
        let (filters, all) = (self.dataset.filters(), out.len());
        let decoded = filters.decode(stored, chunk.filter_mask, out, all, &mut between);
        decoded.map_err(|fault| self.bad_chunk(chunk, &fault))?;
        Ok(true)
    }

    /// Returns the wanted rows of a chunk, or `None` where it was never written.
    pub(super) fn decode<'s>(
        &'s self,
        column: &Column<'_>,
        rows: &Range<u64>,
        scratch: &'s mut Scratch,
    ) -> Result<Option<&'s [u8]>> {
        let Some(chunk) = column.chunk else {
            return Ok(None);
        };
        let row_bytes = (column.row_elements * self.convert.stride) as u64;
        let start = column.grid.start_in_chunk() + rows.start * row_bytes;
        let length = (rows.end - rows.start) * row_bytes;
        let (stored, decoded, mut between) = scratch.parts();
        if column.is_plain {
            self.check_plain(column, chunk)?;
            let address = chunk.address + start;
            let there = chunk.size.saturating_sub(start);
            if there < length {
                // It was stored without what is not in the dataset.
                let buffer = grow_to(stored, length as usize);
                let (from_file, rest) = buffer.split_at_mut(there as usize);
                self.source().read_at(address, from_file)?;
                rest.fill(0);
                return Ok(Some(buffer));
            }
            return self.bytes(address, length, stored).map(Some);
        }
        let decoded = grow_to(decoded, column.grid.chunk_bytes as usize);
        let bytes = self.bytes(chunk.address, chunk.size, stored)?;
        let filters = self.dataset.filters();
        let used = column.grid.used_bytes(chunk.index) as usize;
        let done = filters.decode(bytes, chunk.filter_mask, decoded, used, &mut between);
        done.map_err(|fault| self.bad_chunk(chunk, &fault))?;
        Ok(Some(&decoded[start as usize..(start + length) as usize]))
    }

    /// Checks that a chunk without filters has all elements that are in the dataset.
    fn check_plain(&self, column: &Column<'_>, chunk: Chunk) -> Result<()> {
        match chunk.size < column.grid.used_bytes(chunk.index) {
            true => Err(self.bad_chunk(chunk, &DecodeError::damaged("it is too short"))),
            false => Ok(()),
        }
    }

    fn copy_row(&self, column: &Column<'_>, from: &[u8], row: &mut [u8]) -> Result<()> {
        let stride = self.convert.stride;
        column.runs.iter().try_for_each(|run| {
            let place = self.place(run, row);
            self.convert.run(&from[run.from * stride..], place)
        })
    }

    pub(super) fn fill_row(&self, column: &Column<'_>, row: &mut [u8]) -> Result<()> {
        let mut runs = column.runs.iter();
        runs.try_for_each(|run| self.fill(self.place(run, row)))
    }

    /// Returns where a run belongs in a row, of which only the beginning may be wanted.
    fn place<'r>(&self, run: &Run, row: &'r mut [u8]) -> &'r mut [u8] {
        let (width, end) = (self.convert.width, row.len());
        &mut row[(run.to * width).min(end)..((run.to + run.length) * width).min(end)]
    }

    pub(super) fn fill(&self, out: &mut [u8]) -> Result<()> {
        // Zero has no bit set in every type of number.
        let Some(fill) = self.dataset.fill() else {
            out.fill(0);
            return Ok(());
        };
        let mut value = vec![0; self.convert.width];
        self.convert.run(fill, &mut value)?;
        for element in out.chunks_exact_mut(value.len()) {
            element.copy_from_slice(&value);
        }
        Ok(())
    }

    /// Returns bytes of the file: a view of them, or read into `buffer`.
    fn bytes<'b>(&'b self, address: u64, length: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let source = self.source();
        if let Some(view) = source.view(address, length)? {
            return Ok(view);
        }
        let buffer = grow_to(buffer, length as usize);
        source.read_at(address, buffer)?;
        Ok(buffer)
    }

    pub(super) fn source(&self) -> &crate::source::Source {
        self.dataset.container().source()
    }

    fn bad_chunk(&self, chunk: Chunk, fault: &DecodeError) -> vramfit_base::Error {
        let path = Dataset::path(&self.dataset);
        let place = format!("chunk {} of dataset `{path}`", chunk.index);
        match fault {
            DecodeError::Damaged(what) => {
                let what = format_args!("{place}: {what}");
                self.source().damaged(chunk.address, what)
            }
            DecodeError::Unsupported(what) => {
                Error::unsupported_feature(format!("{place}: {what} is not supported"))
                    .hint(format!("rewrite it where the filter is installed: {}", filter::REPACK))
            }
        }
    }
}
