//! Reading the rows of one dataset of a column: unpacked and normalized, where the options say so.
//!
//! Both are done in double precision, from what the file has, before numbers become of the type that is wanted: a
//! value less its mean may be exact where the value itself is not.

use std::ops::Range;

use half::{bf16, f16};
use vramfit_base::{Error, Result};

use super::normalization::Normalization;
use super::packing::Packing;
use crate::hdf5::Scalar;
use crate::read::{Dataset, RowReader, to_bf16, to_f16};

/// Rows that are converted at a time have at most this many bytes, unless they are decoded together.
const PIECE_BYTES: usize = 1 << 20;

/// Reads the rows of one dataset of a column.
#[derive(Debug)]
pub(super) struct ColumnReader {
    /// Reads doubles, if they are rescaled.
    rows: RowReader,
    rescaling: Option<Rescaling>,
}

/// What is done to numbers before they are handed out, and the type that they become.
#[derive(Debug)]
pub(super) struct Rescaling {
    pub(super) packing: Option<Packing>,
    pub(super) normalization: Option<Normalization>,
    pub(super) to: Scalar,
}

impl ColumnReader {
    /// Hands out rows as they are read, or what doubles that are read become.
    pub(super) fn new(rows: RowReader, rescaling: Option<Rescaling>) -> ColumnReader {
        debug_assert!(rescaling.is_none() || rows.scalar() == Scalar::Float64);
        ColumnReader { rows, rescaling }
    }

    /// Returns the reader of the rows as they are read.
    pub(super) fn rows(&self) -> &RowReader {
        &self.rows
    }

    pub(super) fn dataset(&self) -> &Dataset {
        self.rows.dataset()
    }

    pub(super) fn len(&self) -> u64 {
        self.rows.len()
    }

    /// Returns the type of the numbers that are handed out.
    pub(super) fn scalar(&self) -> Scalar {
        self.rescaling.as_ref().map_or(self.rows.scalar(), |rescaling| rescaling.to)
    }

    /// Returns the bytes of a row that is handed out.
    pub(super) fn row_bytes(&self) -> usize {
        match &self.rescaling {
            Some(rescaling) => self.rows.row_bytes() / size_of::<f64>() * rescaling.to.size(),
            None => self.rows.row_bytes(),
        }
    }

    /// Returns the bytes of memory that rescaling rows needs.
    pub(super) fn rescaling_bytes(&self) -> u64 {
        match &self.rescaling {
            Some(_) => self.piece_rows().saturating_mul(self.rows.row_bytes() as u64),
            None => 0,
        }
    }

    /// Reads the rows of a range, one after another.
    ///
    /// # Errors
    /// As [`RowReader::read`].
    pub(super) fn read(&self, rows: Range<u64>, out: &mut [u8]) -> Result<()> {
        let Some(rescaling) = &self.rescaling else {
            return self.rows.read(rows, out);
        };
        let (row_bytes, piece_rows) = (self.row_bytes(), self.piece_rows());
        let (mut start, mut rest, mut doubles) = (rows.start, out, Vec::new());
        while start < rows.end {
            let end = (start - start % piece_rows + piece_rows).min(rows.end);
            let count = (end - start) as usize;
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(count * row_bytes);
            doubles.resize(count * self.rows.row_bytes(), 0);
            self.rows.read(start..end, &mut doubles)?;
            rescaling.apply(&mut doubles, here).map_err(|error| self.name(error))?;
            (start, rest) = (end, behind);
        }
        Ok(())
    }

    /// Reads rows in any order, one after another.
    ///
    /// # Errors
    /// As [`RowReader::read`].
    pub(super) fn gather(&self, rows: &[u64], out: &mut [u8]) -> Result<()> {
        let Some(rescaling) = &self.rescaling else {
            return self.rows.gather(rows, out);
        };
        let mut doubles = vec![0; rows.len() * self.rows.row_bytes()];
        self.rows.gather(rows, &mut doubles)?;
        rescaling.apply(&mut doubles, out).map_err(|error| self.name(error))
    }

    /// Reads rows, which are sorted, each to its own place.
    ///
    /// # Errors
    /// As [`RowReader::read`].
    pub(super) fn gather_into(&self, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        let Some(rescaling) = &self.rescaling else {
            return self.rows.gather_into(rows);
        };
        let numbers: Vec<u64> = rows.iter().map(|(row, _)| *row).collect();
        let length = self.rows.row_bytes();
        let mut doubles = vec![0; numbers.len() * length];
        self.rows.gather(&numbers, &mut doubles)?;
        let mut each = rows.iter_mut().zip(doubles.chunks_exact_mut(length));
        each.try_for_each(|((_, out), doubles)| rescaling.apply(doubles, out))
            .map_err(|error| self.name(error))
    }

    /// Returns how many rows are rescaled at a time: as many as are decoded together, or more.
    fn piece_rows(&self) -> u64 {
        let rows = (PIECE_BYTES / self.rows.row_bytes().max(1)).max(1) as u64;
        match self.rows.rows_per_decode() {
            Some(band) => rows.next_multiple_of(band.max(1)),
            None => rows,
        }
    }

    fn name(&self, error: Error) -> Error {
        error.context(format_args!("dataset `{}`", self.rows.dataset().path()))
    }
}

impl Rescaling {
    /// Rescales doubles, and writes them as numbers of the type that is wanted.
    fn apply(&self, doubles: &mut [u8], out: &mut [u8]) -> Result<()> {
        let (numbers, _) = doubles.as_chunks_mut::<8>();
        if let Some(packing) = &self.packing {
            packing.apply(numbers);
        }
        if let Some(normalization) = &self.normalization {
            normalization.apply(numbers);
        }
        macro_rules! write {
            ($size:literal, $narrow:expr, $is_finite:expr) => {{
                let (out, _) = out.as_chunks_mut::<$size>();
                for (bytes, out) in numbers.iter().zip(out) {
                    let number = f64::from_le_bytes(*bytes);
                    let narrowed = $narrow(number);
                    if number.is_finite() && !$is_finite(narrowed) {
                        return Err(out_of_range(number, self.to));
                    }
                    *out = narrowed.to_le_bytes();
                }
            }};
        }
        match self.to {
            Scalar::Float32 => write!(4, |number| number as f32, f32::is_finite),
            Scalar::Float16 => write!(2, to_f16, f16::is_finite),
            Scalar::Bfloat16 => write!(2, to_bf16, bf16::is_finite),
            _ => out.copy_from_slice(numbers.as_flattened()),
        }
        Ok(())
    }
}

fn out_of_range(number: f64, to: Scalar) -> Error {
    Error::invalid_argument(format!("{number} is out of range for {}", to.name()))
        .hint("choose a wider type: `dtype=\"float32\"`")
}
