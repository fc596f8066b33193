//! The rows of some blocks of samples in memory.

use std::ops::Range;

use vramfit_base::Result;

use super::columns::Columns;
use super::copy::CACHE_LINE;
use super::segments::TouchedFiles;
use super::slab::Slab;
use crate::sample::{RowRanges, SampleIndex};

/// What one task has loaded: for each column the rows of one block after another.
#[derive(Debug)]
pub(super) struct LoadedBlocks {
    pub(super) memory: Slab,
    /// Where each column is in it.
    columns: Vec<Range<usize>>,
    /// For each column the rows that each block has, unless these are its samples.
    pub(super) rows: Vec<Vec<BlockRows>>,
}

impl BlockRows {
    /// Returns where a row is among those of all blocks.
    pub(super) fn place(&self, row: u64) -> u64 {
        self.before + self.rows.rank(row)
    }
}

/// The samples of a block, in ascending order.
#[derive(Debug)]
pub(super) enum BlockSamples {
    All(Range<u64>),
    Some(Vec<u64>),
}

impl BlockSamples {
    /// Returns the rows of a column that they have.
    fn rows(&self, index: &SampleIndex, column: usize) -> RowRanges {
        match self {
            BlockSamples::All(samples) if index.is_rows() => {
                std::iter::once(samples.clone()).collect()
            }
            BlockSamples::All(samples) => index.rows_of(samples.clone(), column),
            BlockSamples::Some(samples) => index.rows_of(samples.iter().copied(), column),
        }
    }
}

/// The rows of a block, and how many of other blocks are before them.
#[derive(Debug)]
pub(super) struct BlockRows {
    rows: RowRanges,
    before: u64,
}

impl LoadedBlocks {
    /// Makes room for blocks of samples in `memory`, and reads their rows. `samples` has those of each block.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn load(
        memory: Slab,
        blocks: &[BlockSamples],
        columns: &Columns,
        touched: &mut TouchedFiles,
    ) -> Result<LoadedBlocks> {
        let mut loaded = LoadedBlocks { memory, columns: Vec::new(), rows: Vec::new() };
        let mut start = 0;
        for (number, column) in columns.columns.iter().enumerate() {
            let mut before = 0;
            let rows = blocks.iter().map(|samples| {
                let rows = samples.rows(&columns.samples, number);
                let block = BlockRows { before, rows };
                before += block.rows.len();
                block
            });
            let rows: Vec<BlockRows> = rows.collect();
            let range = start..start + before as usize * column.row_bytes();
            start = range.end.next_multiple_of(CACHE_LINE);
            loaded.columns.push(range);
            let mut rest = loaded.column_mut(number);
            for block in &rows {
                let bytes = block.rows.len() as usize * column.row_bytes();
                let (out, after) = rest.split_at_mut(bytes);
                columns.read(number, &block.rows, out, touched)?;
                rest = after;
            }
            if !columns.samples.is_rows() {
                loaded.rows.push(rows);
            }
        }
        Ok(loaded)
    }

    pub(super) fn column(&self, number: usize) -> &[u8] {
        &self.memory.bytes()[self.columns[number].clone()]
    }

    fn column_mut(&mut self, number: usize) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.columns[number].clone()]
    }
}
