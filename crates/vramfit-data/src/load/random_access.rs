//! Rows by their numbers, in any order: a random-access source for a data pipeline.

use std::path::PathBuf;

use vramfit_base::{Bytes, Result};

use super::cache::BlockCache;
use super::columns::{Column, Columns};
use super::options::{ColumnOptions, LoaderOptions};
use crate::hdf5::Scalar;

/// Reads rows of datasets with the same number of rows. Threads can share it.
#[derive(Debug)]
pub struct RandomAccessReader {
    columns: Columns,
    cache: BlockCache,
}

impl RandomAccessReader {
    /// Opens a file. `cache` limits the decoded rows that are kept.
    ///
    /// # Errors
    ///
    /// As [`super::Loader::open`].
    pub fn open(
        file: PathBuf,
        columns: Vec<ColumnOptions>,
        float_type: Option<Scalar>,
        cache: Bytes,
    ) -> Result<RandomAccessReader> {
        let options = LoaderOptions { columns, float_type, ..LoaderOptions::new(file, []) };
        Ok(RandomAccessReader {
            columns: Columns::open(&options)?,
            cache: BlockCache::new(usize::try_from(cache.0).unwrap_or(usize::MAX)),
        })
    }

    /// Returns the datasets, in the order of `columns`.
    pub fn columns(&self) -> &[Column] {
        &self.columns.columns
    }

    /// Returns how many rows there are.
    pub fn row_count(&self) -> u64 {
        self.columns.len()
    }

    /// Reads rows of the column with a number, in the order of `rows`, into `out`.
    ///
    /// # Errors
    ///
    /// As [`crate::read::RowReader::gather`]; `file-changed`.
    pub fn gather(&self, column: usize, rows: &[u64], out: &mut [u8]) -> Result<()> {
        let reader = self.columns.columns[column].rows();
        let all_exist = rows.iter().all(|row| *row < reader.len());
        let block_rows = reader.rows_per_decode().unwrap_or(0);
        let block_bytes = (block_rows as usize).saturating_mul(reader.row_bytes());
        if block_bytes == 0 || !all_exist || !self.cache.can_hold(block_bytes) {
            reader.gather(rows, out)?;
            return self.columns.ensure_unchanged();
        }
        let places = out.chunks_exact_mut(reader.row_bytes());
        let mut wanted: Vec<(u64, &mut [u8])> = rows.iter().copied().zip(places).collect();
        wanted.sort_unstable_by_key(|(row, _)| *row);
        for rows in wanted.chunk_by_mut(|(one, _), (next, _)| one / block_rows == next / block_rows)
        {
            let block = rows[0].0 / block_rows;
            let first = block * block_rows;
            let end = (first + block_rows).min(reader.len());
            let length = (end - first) as usize * reader.row_bytes();
            let decode = |out: &mut [u8]| {
                reader.read(first..end, out)?;
                self.columns.ensure_unchanged()
            };
            let copy = |block: &[u8]| {
                for (row, out) in rows {
                    let start = (*row - first) as usize * out.len();
                    out.copy_from_slice(&block[start..start + out.len()]);
                }
            };
            self.cache.with_block((column, block), length, decode, copy)?;
        }
        Ok(())
    }
}
