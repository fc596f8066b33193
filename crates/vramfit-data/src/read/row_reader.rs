//! Rows of a dataset, in ranges or in any order.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use vramfit_base::{Error, Result};

use super::convert::Converter;
use super::dataset::{Dataset, Storage, of_dataset};
use super::fields::find_numbers;
use super::last_axis::contiguous_band_rows;
use super::overflow;
use super::row_options::{RowOptions, ScratchPool};
use super::virtual_source::VirtualSource;
use crate::filter::Scratch;
use crate::hdf5::Scalar;
use crate::hdf5::dataspace::checked_product;

/// What is read at once where the file itself has no bands.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
/// A batch of stacked batches has two axes more, and an array of NumPy has 32 at most (64 since 2.0).
const MAX_ROW_AXES: usize = 30;
/// Below this, starting threads takes longer than the work.
const SMALL: usize = 1 << 18;

/// Reads the rows of a dataset. It can be shared between threads; each call works by itself.
#[derive(Debug)]
pub struct RowReader {
    pub(super) dataset: Dataset,
    pub(super) convert: Converter,
    scalar: Scalar,
    row_shape: Vec<u64>,
    /// Elements of a row, and their bytes as they are wanted.
    pub(super) row_elements: usize,
    pub(super) row_bytes: usize,
    band_rows: u64,
    /// Whether rows are on the last axis, of several.
    is_last_axis: bool,
    threads: usize,
    /// Readers of the pieces of a virtual dataset.
    pub(super) pieces: Vec<RowReader>,
    scratch: ScratchPool,
}

impl RowReader {
    /// Prepares to read a dataset.
    ///
    /// # Errors
    ///
    /// `unsupported-feature` when its elements are no numbers; `invalid-argument` when it has no rows,
    /// when a field must be named and is not, or when there is no such conversion.
    pub fn new(dataset: Dataset, options: &RowOptions) -> Result<RowReader> {
        let path = dataset.path().to_owned();
        RowReader::prepare(dataset, options).map_err(|error| of_dataset(&path, &error))
    }

    /// Prepares to read elements of any type byte by byte, as the file has them. [`RowReader::scalar`] says
    /// nothing about those.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when the dataset has no rows; `unsupported-feature` when a row is too large.
    pub fn raw(dataset: Dataset, scratch: &ScratchPool) -> Result<RowReader> {
        let path = dataset.path().to_owned();
        let convert = Converter::identity(dataset.datatype().size());
        let pieces =
            |piece: &VirtualSource| RowReader::raw(Dataset::clone(&piece.dataset), scratch);
        let options = RowOptions { scratch: scratch.clone(), ..RowOptions::default() };
        let rows = RowReader::with(dataset, convert, Scalar::Uint8, &[], &options, &pieces);
        rows.map_err(|error| of_dataset(&path, &error))
    }

    fn prepare(dataset: Dataset, options: &RowOptions) -> Result<RowReader> {
        if dataset.shape().is_empty() {
            return Err(Error::invalid_argument("it is a scalar and has no rows"));
        }
        let numbers = find_numbers(dataset.datatype(), options.field.as_deref())?;
        let scalar = options.to.unwrap_or(numbers.number.scalar);
        let convert = Converter::new(dataset.datatype().size(), numbers, scalar)?;
        let inner: Vec<_> = numbers.axes.iter().map(|axis| axis.length as u64).collect();
        let pieces = |piece: &VirtualSource| {
            let options = RowOptions { is_last_axis: piece.is_last_axis, ..options.clone() };
            RowReader::new(Dataset::clone(&piece.dataset), &options)
        };
        RowReader::with(dataset, convert, scalar, &inner, options, &pieces)
    }

    fn with(
        dataset: Dataset,
        convert: Converter,
        scalar: Scalar,
        inner: &[u64],
        options: &RowOptions,
        of_piece: &dyn Fn(&VirtualSource) -> Result<RowReader>,
    ) -> Result<RowReader> {
        let is_last_axis = options.is_last_axis && dataset.shape().len() > 1;
        let dataset = if is_last_axis { dataset.on_last_axis()? } else { dataset };
        let axes = match is_last_axis {
            true => dataset.shape().split_last(),
            false => dataset.shape().split_first(),
        };
        let Some((&rows, row_shape)) = axes else {
            return Err(Error::invalid_argument("it is a scalar and has no rows"));
        };
        let elements = checked_product(1, row_shape);
        let too_large =
            || Error::unsupported_feature("the size of a row exceeds the address space");
        let row_elements = elements.and_then(|elements| usize::try_from(elements).ok());
        let row_elements = row_elements.ok_or_else(too_large)?;
        let row_bytes = row_elements.checked_mul(convert.width).ok_or_else(too_large)?;
        row_elements.checked_mul(convert.stride).ok_or_else(too_large)?;
        let row_shape = [row_shape, inner].concat();
        if row_shape.len() > MAX_ROW_AXES {
            return Err(Error::unsupported_feature(format!(
                "rows of {} dimensions exceed the limit of {MAX_ROW_AXES}",
                row_shape.len()
            )));
        }
        let band_rows = match dataset.storage() {
            Storage::Compact(_) => rows,
            Storage::Contiguous(_) if is_last_axis => {
                let element = convert.stride as u64;
                contiguous_band_rows(element, element * row_elements as u64).min(rows)
            }
            Storage::Chunked { grid, .. } if is_last_axis => grid.chunk[grid.chunk.len() - 1],
            Storage::Contiguous(_) => BLOCK_BYTES / (row_elements * convert.stride).max(1) as u64,
            Storage::Chunked { grid, .. } => grid.chunk[0],
            Storage::Virtual(pieces) => {
                pieces.iter().map(|piece| piece.rows.end - piece.rows.start).max().unwrap_or(1)
            }
        };
        let pieces = match dataset.storage() {
            Storage::Virtual(pieces) => pieces.iter().map(of_piece).collect::<Result<_>>()?,
            _ => Vec::new(),
        };
        Ok(RowReader {
            convert,
            scalar,
            row_shape,
            row_elements,
            row_bytes,
            band_rows: band_rows.max(1),
            is_last_axis,
            threads: options.threads.max(1),
            scratch: options.scratch.clone(),
            pieces,
            dataset,
        })
    }

    /// Returns the dataset that is read.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Returns how many rows there are.
    pub fn len(&self) -> u64 {
        let shape = self.dataset.shape();
        shape[if self.is_last_axis { shape.len() - 1 } else { 0 }]
    }

    /// Whether rows are on the last axis, and there are others.
    pub fn is_last_axis(&self) -> bool {
        self.is_last_axis
    }

    /// Returns the readers of the sources of a virtual dataset.
    pub fn pieces(&self) -> &[RowReader] {
        &self.pieces
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the shape of a row: the other axes of the dataset, and behind them those of the arrays that
    /// its elements are.
    pub fn row_shape(&self) -> &[u64] {
        &self.row_shape
    }

    /// Returns how many bytes a row has, as it is written into the caller's buffer.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns how many bytes an element has, as it is written into the caller's buffer: one number, or all
    /// those of an array.
    pub fn element_bytes(&self) -> usize {
        self.convert.width
    }

    /// Returns what the numbers are, as they are written into the caller's buffer (little-endian).
    pub fn scalar(&self) -> Scalar {
        self.scalar
    }

    /// Whether numbers are handed out as the file has them, so that a range of rows that is stored without
    /// filters is read right into the caller's buffer.
    pub fn is_unchanged(&self) -> bool {
        self.convert.is_copy()
    }

    /// Returns how many rows a band has: what is decoded together, so that reading one row of it costs
    /// as much as reading all. Where nothing has to be decoded it is about a mebibyte of rows.
    pub fn band_rows(&self) -> u64 {
        self.band_rows
    }

    /// Returns how many rows are decoded together; none where rows are stored as they are.
    pub fn rows_per_decode(&self) -> Option<u64> {
        match self.dataset.storage() {
            Storage::Chunked { .. } if self.is_last_axis => Some(self.band_rows),
            // A line that is the only one can be read as rows are.
            Storage::Contiguous(_) if self.is_last_axis && self.row_elements > 1 => {
                Some(self.band_rows)
            }
            Storage::Chunked { .. } if !self.dataset.filters().is_empty() => Some(self.band_rows),
            Storage::Virtual(sources) => {
                let pieces = self.pieces.iter().zip(sources.iter());
                pieces
                    .filter_map(|(piece, source)| Some(source.rows_of(piece.rows_per_decode()?)))
                    .max()
            }
            _ => None,
        }
    }

    /// Reads the rows of a range, one after another, into `out`.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when there are no such rows, when `out` is not exactly as long as they
    /// are, or when an integer does not fit; `invalid-file` when the file is damaged; `io`.
    pub fn read(&self, rows: Range<u64>, out: &mut [u8]) -> Result<()> {
        if rows.start > rows.end || rows.end > self.len() {
            return Err(self.failed(&format!(
                "has {} rows, not {} to {}",
                self.len(),
                rows.start,
                rows.end
            )));
        }
        self.check_length(rows.end - rows.start, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let start = rows.start;
        let count = rows.end - start;
        self.read_range(rows, out).map_err(|error| {
            let again = |part: Range<u64>| {
                let mut out = vec![0; (part.end - part.start) as usize * self.row_bytes];
                self.read_range(start + part.start..start + part.end, &mut out)
            };
            overflow::name_row(error, self.dataset.path(), count, &again, &|at| start + at)
        })
    }

    fn read_range(&self, rows: Range<u64>, out: &mut [u8]) -> Result<()> {
        if let Storage::Virtual(pieces) = self.dataset.storage() {
            return self.read_pieces(pieces, rows, out);
        }
        let parallel = out.len() >= SMALL;
        let mut rest = out;
        let mut start = rows.start;
        let pieces = std::iter::from_fn(|| {
            if start >= rows.end {
                return None;
            }
            let end = (start - start % self.band_rows).saturating_add(self.band_rows).min(rows.end);
            let bytes = (end - start) as usize * self.row_bytes;
            let (piece, behind) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = behind;
            let range = start..end;
            start = end;
            Some((range, piece))
        });
        self.work(pieces, parallel, |(range, piece), scratch| {
            if self.is_last_axis {
                let places = piece.chunks_exact_mut(self.row_bytes);
                return self.gather_last_axis(&mut range.zip(places).collect::<Vec<_>>(), scratch);
            }
            self.read_chunk_rows(range, piece, scratch)
        })
    }

    /// Reads rows in the order of `rows`, which may have duplicates, into `out`. Each band that has
    /// some of them is decoded once.
    ///
    /// # Errors
    ///
    /// As [`RowReader::read`].
    pub fn gather(&self, rows: &[u64], out: &mut [u8]) -> Result<()> {
        if let Some(row) = rows.iter().find(|row| **row >= self.len()) {
            return Err(self.failed(&format!("has {} rows, not {row}", self.len())));
        }
        self.check_length(rows.len() as u64, out.len())?;
        if self.row_bytes == 0 {
            return Ok(());
        }
        self.gather_rows(rows, out).map_err(|error| {
            let again = |part: Range<u64>| {
                let rows = &rows[part.start as usize..part.end as usize];
                self.gather_rows(rows, &mut vec![0; rows.len() * self.row_bytes])
            };
            let row = |at: u64| rows[at as usize];
            overflow::name_row(error, self.dataset.path(), rows.len() as u64, &again, &row)
        })
    }

    fn gather_rows(&self, rows: &[u64], out: &mut [u8]) -> Result<()> {
        let places = out.chunks_exact_mut(self.row_bytes);
        if !self.is_last_axis && self.gather_mapped(rows, places)? {
            return Ok(());
        }
        let places = out.chunks_exact_mut(self.row_bytes);
        let mut sorted: Vec<(u64, &mut [u8])> = rows.iter().copied().zip(places).collect();
        sorted.sort_unstable_by_key(|(row, _)| *row);
        self.gather_sorted(&mut sorted)
    }

    /// Reads rows, which are sorted, each to its own place.
    ///
    /// # Errors
    ///
    /// As [`RowReader::read`].
    pub fn gather_into(&self, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        debug_assert!(rows.is_sorted_by_key(|(row, _)| *row));
        if let Some((row, _)) = rows.last().filter(|(row, _)| *row >= self.len()) {
            return Err(self.failed(&format!("has {} rows, not {row}", self.len())));
        }
        if let Some((_, out)) = rows.iter().find(|(_, out)| out.len() != self.row_bytes) {
            return Err(self.failed(&format!(
                "is read into a place of {} bytes, and a row has {}",
                out.len(),
                self.row_bytes
            )));
        }
        if self.row_bytes == 0 {
            return Ok(());
        }
        // Reading a virtual dataset changes them.
        let numbers: Vec<u64> = rows.iter().map(|(row, _)| *row).collect();
        self.gather_sorted(rows).map_err(|error| {
            let again = |part: Range<u64>| {
                let rows = &numbers[part.start as usize..part.end as usize];
                self.gather_rows(rows, &mut vec![0; rows.len() * self.row_bytes])
            };
            let row = |at: u64| numbers[at as usize];
            overflow::name_row(error, self.dataset.path(), numbers.len() as u64, &again, &row)
        })
    }

    pub(super) fn gather_sorted(&self, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        if let Storage::Virtual(pieces) = self.dataset.storage() {
            return self.gather_pieces(pieces, rows);
        }
        let parallel = rows.len() * self.row_bytes >= SMALL;
        let bands =
            rows.chunk_by_mut(|(one, _), (next, _)| one / self.band_rows == next / self.band_rows);
        self.work(bands, parallel, |rows, scratch| match self.is_last_axis {
            true => self.gather_last_axis(rows, scratch),
            false => self.gather_chunk_rows(rows, scratch),
        })
    }

    /// Reads all rows in order, and gives the number and the bytes of each to `each`.
    ///
    /// # Errors
    ///
    /// As [`RowReader::read`], and those of `each`.
    pub fn for_each_row(&self, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let rows_at_a_time = (BLOCK_BYTES / self.row_bytes.max(1) as u64).max(1);
        let mut buffer = Vec::new();
        for start in (0..self.len()).step_by(rows_at_a_time as usize) {
            let end = (start + rows_at_a_time).min(self.len());
            buffer.resize((end - start) as usize * self.row_bytes, 0);
            self.read(start..end, &mut buffer)?;
            let rows = buffer.chunks_exact(self.row_bytes.max(1));
            (start..end).zip(rows).try_for_each(|(row, bytes)| each(row, bytes))?;
        }
        Ok(())
    }

    /// Reads the first elements of each row of a range, one after another: `out` is divided evenly among the
    /// rows. Of a large row no more is read than what holds them.
    ///
    /// # Errors
    ///
    /// As [`RowReader::read`].
    pub fn read_starts(&self, rows: Range<u64>, out: &mut [u8]) -> Result<()> {
        let count = rows.end.saturating_sub(rows.start) as usize;
        let start_bytes = out.len().checked_div(count).unwrap_or(0);
        let is_even = start_bytes * count == out.len()
            && start_bytes.is_multiple_of(self.convert.width.max(1));
        if rows.end > self.len() || start_bytes > self.row_bytes || !is_even {
            return Err(self.failed(&format!(
                "is read into a buffer of {} bytes for the first elements of rows {} to {}",
                out.len(),
                rows.start,
                rows.end
            )));
        }
        if start_bytes == 0 {
            return Ok(());
        }
        let mut starts: Vec<_> = rows.zip(out.chunks_exact_mut(start_bytes)).collect();
        self.gather_sorted(&mut starts)
    }

    /// Does every piece of work, on as many threads as are wanted.
    fn work<T: Send>(
        &self,
        pieces: impl Iterator<Item = T> + Send,
        parallel: bool,
        each: impl Fn(T, &mut Scratch) -> Result<()> + Sync,
    ) -> Result<()> {
        if self.threads == 1 || !parallel {
            let mut pieces = pieces;
            return self.scratch.with(|scratch| pieces.try_for_each(|piece| each(piece, scratch)));
        }
        let pieces = Mutex::new(pieces);
        let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
        let run = || {
            self.scratch.with(|scratch| {
                while let Some(piece) = next() {
                    each(piece, scratch)?;
                }
                Ok(())
            })
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(run)).collect();
            let mut result = run();
            for other in others {
                match other.join() {
                    Ok(done) => result = result.and(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            result
        })
    }

    fn check_length(&self, rows: u64, length: usize) -> Result<()> {
        let expected = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(self.row_bytes));
        if expected == Some(length) {
            return Ok(());
        }
        Err(self.failed(&format!(
            "is read into a buffer of {length} bytes, and {rows} rows have {} each",
            self.row_bytes
        )))
    }

    fn failed(&self, what: &str) -> Error {
        Error::invalid_argument(format!("dataset `{}` {what}", self.dataset.path()))
    }
}
