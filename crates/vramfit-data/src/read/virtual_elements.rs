//! Where the elements of a source are in the rows of a virtual dataset.
//!
//! Both are numbered in the order of their selections, the last axis first; equal numbers are the same element. Whole rows of the
//! source are read, and runs of elements copied from them.

use vramfit_base::Result;

use super::dataset::Dataset;
use super::row_reader::RowReader;
use crate::hdf5::selection::AxisSelection;
use crate::hdf5::virtual_map::unsupported;

/// Rows of a source that are read together have about so many bytes, or are those of one row.
const READ_TOGETHER: usize = 4 << 20;
/// More runs of a row are not listed.
const MAX_RUNS: u64 = 1 << 22;

/// Elements side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Where in the row it begins.
    start: usize,
    length: usize,
    /// How many selected elements of the row come before.
    before: usize,
}

/// Rows of which elements are selected, and which.
#[derive(Clone, Debug)]
struct Side {
    rows: AxisSelection,
    runs: Vec<Run>,
    /// How many elements are selected of a row.
    elements: u64,
}

/// The elements of a source, and of the virtual dataset.
#[derive(Clone, Debug)]
pub(super) struct ElementMap {
    source: Side,
    target: Side,
    /// How many rows the dataset of the source has.
    source_rows: u64,
}

impl Side {
    fn new(axes: &[AxisSelection], shape: &[u64]) -> Result<Side> {
        // Runs of what is behind an axis, and the elements of that.
        let mut runs = vec![(0, 1)];
        let mut unit = 1;
        for (axis, length) in axes[1..].iter().zip(&shape[1..]).rev() {
            let is_whole = runs == [(0, unit)];
            let blocks = if axis.is_contiguous() { 1 } else { axis.count };
            let count = match is_whole {
                true => blocks,
                false => axis.len().saturating_mul(runs.len() as u64),
            };
            if count > MAX_RUNS {
                return Err(unsupported("a source is mapped to that many pieces of a row"));
            }
            runs = if is_whole {
                let block = axis.len() / blocks;
                let begin = |number| (axis.start + number * axis.stride) * unit;
                (0..blocks).map(|number| (begin(number), block * unit)).collect()
            } else {
                (0..axis.len())
                    .flat_map(|number| {
                        let begin = axis.at(number) * unit;
                        runs.iter().map(move |(start, length)| (begin + start, *length))
                    })
                    .collect()
            };
            unit *= length;
        }
        let mut elements = 0;
        let runs = runs.into_iter().map(|(start, length)| {
            let before = elements;
            elements += length;
            Run { start: start as usize, length: length as usize, before: before as usize }
        });
        let runs = runs.collect();
        Ok(Side { rows: axes[0], runs, elements })
    }
}

impl ElementMap {
    /// Maps a selection of a source to one of the virtual dataset, which has as many elements.
    pub(super) fn new(
        source: &[AxisSelection],
        source_shape: &[u64],
        target: &[AxisSelection],
        target_shape: &[u64],
    ) -> Result<ElementMap> {
        Ok(ElementMap {
            source: Side::new(source, source_shape)?,
            target: Side::new(target, target_shape)?,
            source_rows: source_shape[0],
        })
    }

    /// Returns how many rows of the virtual dataset have the elements of so many rows of the source.
    pub(super) fn rows_of(&self, rows: u64) -> u64 {
        let elements = u128::from(rows) * u128::from(self.source.elements);
        let rows = elements.div_ceil(u128::from(self.target.elements));
        u64::try_from(rows).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the bytes of the rows of the source that are read together.
    pub(super) fn buffer_bytes(&self, source: &Dataset) -> u64 {
        let rows = self.source_rows.max(1);
        // Elements of one row may begin in the middle of a row of the source.
        let needed = (self.target.elements / self.source.elements).saturating_add(2).min(rows);
        let row_bytes = source.bytes() / rows;
        needed.saturating_mul(row_bytes).max((READ_TOGETHER as u64).min(source.bytes()))
    }

    /// Returns the first and the last row of the source, among the selected ones, with elements of a row.
    fn source_rows(&self, row: u64) -> Option<(u64, u64)> {
        let number = self.target.rows.number_of(row)?;
        let first = number * self.target.elements;
        let last = first + (self.target.elements - 1);
        Some((first / self.source.elements, last / self.source.elements))
    }

    /// Copies what the source has of some rows, which are sorted. Places may end before their rows do.
    pub(super) fn copy_rows(
        &self,
        reader: &RowReader,
        rows: &mut [(u64, &mut [u8])],
    ) -> Result<()> {
        let at_once = (READ_TOGETHER / reader.row_bytes.max(1)).max(1);
        let mut rest = rows;
        let mut buffer = Vec::new();
        while !rest.is_empty() {
            let mut wanted: Vec<u64> = Vec::new();
            let mut count = 0;
            for (row, _) in rest.iter() {
                if let Some((first, last)) = self.source_rows(*row) {
                    let first = wanted.last().map_or(first, |known| first.max(known + 1));
                    let more = (last + 1).saturating_sub(first) as usize;
                    if count > 0 && wanted.len() + more > at_once {
                        break;
                    }
                    wanted.extend(first..last + 1);
                }
                count += 1;
            }
            let (here, behind) = rest.split_at_mut(count);
            rest = behind;
            buffer.resize(wanted.len() * reader.row_bytes, 0);
            let places = buffer.chunks_exact_mut(reader.row_bytes);
            let numbers = wanted.iter().map(|number| self.source.rows.at(*number));
            reader.gather_sorted(&mut numbers.zip(places).collect::<Vec<_>>())?;
            for (row, out) in here {
                if let Some((first, _)) = self.source_rows(*row) {
                    let place = wanted.partition_point(|number| *number < first);
                    self.copy_row(reader, *row, &buffer[place * reader.row_bytes..], out);
                }
            }
        }
        Ok(())
    }

    /// Copies what the source has of a row. `input` begins with the first row of the source that has some of it.
    fn copy_row(&self, reader: &RowReader, row: u64, input: &[u8], out: &mut [u8]) {
        let width = reader.convert.width;
        let Some(number) = self.target.rows.number_of(row) else {
            return;
        };
        let first = (number * self.target.elements % self.source.elements) as usize;
        let runs = &self.source.runs;
        let mut run = runs.partition_point(|run| run.before + run.length <= first);
        let mut within = first - runs[run].before;
        let mut row_start = 0;
        for target in &self.target.runs {
            let mut done = 0;
            while done < target.length {
                let length = (target.length - done).min(runs[run].length - within);
                let from = (row_start + runs[run].start + within) * width;
                let to = (target.start + done) * width;
                if to >= out.len() {
                    break;
                }
                let end = (to + length * width).min(out.len());
                out[to..end].copy_from_slice(&input[from..][..end - to]);
                done += length;
                within += length;
                if within == runs[run].length {
                    (within, run) = (0, run + 1);
                }
                if run == runs.len() {
                    (run, row_start) = (0, row_start + reader.row_elements);
                }
            }
            if target.start * width >= out.len() {
                return;
            }
        }
    }
}
