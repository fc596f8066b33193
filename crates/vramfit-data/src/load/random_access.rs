//! Samples by their numbers, in any order: a random-access source for a data pipeline.

use vramfit_base::{Bytes, Error, Result};

use super::cache::BlockCache;
use super::column::Column;
use super::columns::Columns;
use super::options::LoaderOptions;
use super::sample_copy::fill_samples;
use super::segments::TouchedFiles;

/// Reads samples of datasets. Threads can share it.
#[derive(Debug)]
pub struct RandomAccessReader {
    columns: Columns,
    cache: BlockCache,
}

impl RandomAccessReader {
    /// Opens files. `cache` limits the decoded rows that are kept.
    ///
    /// # Errors
    ///
    /// As [`super::Loader::open`].
    pub fn open(options: &LoaderOptions, cache: Bytes) -> Result<RandomAccessReader> {
        Ok(RandomAccessReader {
            columns: Columns::open(options)?,
            cache: BlockCache::new(usize::try_from(cache.0).unwrap_or(usize::MAX)),
        })
    }

    /// Returns the datasets, in the order of `columns`.
    pub fn columns(&self) -> &[Column] {
        &self.columns.columns
    }

    /// Returns what a reader should know of files that were not closed.
    pub fn unclosed_files(&self) -> &[String] {
        &self.columns.unclosed
    }

    /// Returns how many samples there are.
    pub fn sample_count(&self) -> u64 {
        self.columns.len()
    }

    /// Returns in how many groups of files there are datasets.
    pub fn segment_count(&self) -> usize {
        self.columns.segments().segments.len()
    }

    /// Returns what elements of a column of text or bytes of variable length refer to. `elements` has one for each of
    /// `samples`, as [`gather`](Self::gather) reads them.
    ///
    /// # Errors
    ///
    /// As [`crate::read::RowReader::gather`].
    pub fn read_objects(
        &self,
        column: usize,
        samples: &[u64],
        elements: &[u8],
    ) -> Result<Vec<Vec<u8>>> {
        self.columns.read_objects(column, samples, elements, &mut TouchedFiles::new())
    }

    /// Reads samples of the column with a number, in the order of `samples`, into `out`.
    ///
    /// # Errors
    ///
    /// As [`crate::read::RowReader::gather`]; `file-changed`.
    pub fn gather(&self, column: usize, samples: &[u64], out: &mut [u8]) -> Result<()> {
        let count = self.columns.len();
        if let Some(sample) = samples.iter().find(|sample| **sample >= count) {
            return Err(Error::invalid_argument(format!(
                "there are {count} samples, not {sample}"
            )));
        }
        let mut touched = TouchedFiles::new();
        if self.columns.samples.is_rows() {
            return self.gather_rows(column, samples, out, &mut touched);
        }
        fill_samples(&self.columns, column, samples, out, |_, rows, out| {
            self.gather_rows(column, &rows.collect::<Vec<_>>(), out, &mut touched)
        })
    }

    /// Reads rows of all segments, in any order. What is decoded is kept.
    fn gather_rows(
        &self,
        column: usize,
        rows: &[u64],
        out: &mut [u8],
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        let Some(first) = rows.first() else {
            return Ok(());
        };
        let row_bytes = self.columns.columns[column].row_bytes();
        let fits = |rows: &std::ops::Range<u64>| {
            let block_bytes = ((rows.end - rows.start) as usize).saturating_mul(row_bytes);
            self.cache.can_hold(block_bytes)
        };
        // Where one dataset of a column is decoded, all are taken to be.
        if !self.columns.decoded_rows(column, *first)?.is_some_and(|rows| fits(&rows)) {
            self.columns.gather(column, rows, out, touched)?;
            return self.columns.ensure_touched_unchanged(touched);
        }
        let places = out.chunks_exact_mut(row_bytes);
        let mut wanted: Vec<(u64, &mut [u8])> = rows.iter().copied().zip(places).collect();
        wanted.sort_unstable_by_key(|(row, _)| *row);
        let mut rest = wanted.as_mut_slice();
        while let Some((row, _)) = rest.first() {
            let decoded = self.columns.decoded_rows(column, *row)?;
            let block = decoded.unwrap_or(*row..*row + 1);
            let count = rest.partition_point(|(row, _)| *row < block.end);
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(count);
            rest = behind;
            let length = (block.end - block.start) as usize * row_bytes;
            let decode = |out: &mut [u8]| {
                let rows = std::iter::once(block.clone()).collect();
                self.columns.read(column, &rows, out, touched)?;
                self.columns.ensure_touched_unchanged(touched)
            };
            let copy = |bytes: &[u8]| {
                for (row, out) in here {
                    let start = (*row - block.start) as usize * out.len();
                    out.copy_from_slice(&bytes[start..start + out.len()]);
                }
            };
            self.cache.with_block((column, block.start), length, decode, copy)?;
        }
        Ok(())
    }
}
