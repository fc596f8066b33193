//! The shuffle on two levels: blocks in random order, rows in random order inside a window of blocks.
//!
//! What is read together is what is mixed: a reader fills a window with whole blocks, in any order it
//! likes, and then hands out their rows. Many small blocks mix better than few large ones.

use std::ops::Range;

use super::permutation::Permutation;
use super::split::Selection;
use super::{Purpose, WindowSize};
use crate::splitmix::MixKey;

/// Positions whose rows are computed at a time.
const POSITIONS_PER_BATCH: usize = 8;

/// Entries of a window's hint for each of its blocks, so that most lead to the block that is looked for.
const HINTS_PER_BLOCK: u64 = 4;

/// A stretch of consecutive rows, and how many of them are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The rows of the file that the block spans.
    pub rows: Range<u64>,
    /// How many of them are in the part that is gone through; a block without any need not be read.
    pub wanted: u64,
}

/// One window: its blocks, and the order of their rows.
#[derive(Clone, Debug)]
pub struct Window {
    positions: Range<u64>,
    blocks: Vec<Block>,
    /// How many wanted rows of the window come before each block, and then the total.
    before: Vec<u64>,
    /// What has to be added to the number of a wanted row in the window, to have it in the file; where that is less
    /// than nothing it wraps.
    ranks: Vec<u64>,
    rows: Permutation,
    hint: SearchHint,
    selection: Selection,
}

impl Window {
    /// Returns the positions of the epoch that this window serves.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Returns the blocks to read.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the block (its place in [`blocks`](Self::blocks)) and the row of the file that stand at
    /// a position of the epoch, which must be one of [`positions`](Self::positions).
    pub fn get(&self, position: u64) -> (usize, u64) {
        debug_assert!(self.positions.contains(&position));
        self.row_at(self.rows.get(position - self.positions.start))
    }

    /// Gives the block and the row of the file that stand at each of several positions to `each`.
    pub fn for_each(&self, positions: &[u64], mut each: impl FnMut(usize, u64)) {
        let (groups, rest) = positions.as_chunks::<POSITIONS_PER_BATCH>();
        for group in groups {
            let places = group.map(|position| position - self.positions.start);
            for place in self.rows.get_each(places) {
                let (block, row) = self.row_at(place);
                each(block, row);
            }
        }
        for position in rest {
            let (block, row) = self.get(*position);
            each(block, row);
        }
    }

    /// Returns the block and the row of one of the rows of the window, counted from 0 in the order of the blocks.
    #[inline]
    fn row_at(&self, place: u64) -> (usize, u64) {
        let block = self.hint.block_of(place, &self.before);
        (block, self.selection.select(place.wrapping_add(self.ranks[block])))
    }
}

/// Where among the blocks of a window to look for a row: a search by halves would take as long as copying it.
#[derive(Clone, Debug)]
struct SearchHint {
    /// The block of every row whose number ends with this many zero bits.
    blocks: Vec<u32>,
    shift: u32,
}

impl SearchHint {
    /// Makes the hint for blocks with this many rows before each, and then the total.
    fn new(before: &[u64]) -> Self {
        let (blocks, rows) = (before.len() as u64 - 1, before[before.len() - 1]);
        let shift = (rows / (blocks * HINTS_PER_BLOCK).max(1)).max(1).ilog2();
        let mut block = 0;
        let entries = (0..=rows >> shift).map(|entry| {
            // The first block that ends behind the row; the last one for the total itself.
            while block + 2 < before.len() && before[block + 1] <= entry << shift {
                block += 1;
            }
            block as u32
        });
        SearchHint { blocks: entries.collect(), shift }
    }

    #[inline]
    fn block_of(&self, row: u64, before: &[u64]) -> usize {
        let mut block = self.blocks[(row >> self.shift) as usize] as usize;
        while before[block + 1] <= row {
            block += 1;
        }
        block
    }
}

/// The windows of one epoch.
#[derive(Clone, Debug)]
pub(super) struct WindowTable {
    size: WindowSize,
    key: MixKey,
    blocks: Permutation,
    selection: Selection,
    rows: u64,
    /// The position at which each window begins, and then the end.
    starts: Vec<u64>,
}

impl WindowTable {
    pub(super) fn new(
        size: WindowSize,
        rows: u64,
        selection: Selection,
        seed: u64,
        epoch: u64,
    ) -> Self {
        let count = rows.div_ceil(size.block_rows);
        let mut table = WindowTable {
            size,
            key: MixKey::new(&[seed, epoch, Purpose::Window as u64]),
            blocks: Permutation::new(MixKey::new(&[seed, epoch, Purpose::Blocks as u64]), count),
            selection,
            rows,
            starts: vec![0],
        };
        let mut end = 0;
        for window in 0..count.div_ceil(size.window_blocks) {
            end += table.slots(window).map(|slot| table.block(slot).wanted).sum::<u64>();
            table.starts.push(end);
        }
        table
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the window that serves a position.
    pub(super) fn window_at(&self, position: u64) -> usize {
        self.starts.partition_point(|&start| start <= position) - 1
    }

    pub(super) fn window(&self, window: usize) -> Window {
        let positions = self.starts[window]..self.starts[window + 1];
        let blocks: Vec<Block> = self.slots(window as u64).map(|slot| self.block(slot)).collect();
        let mut before = vec![0];
        let mut end = 0;
        for block in &blocks {
            end += block.wanted;
            before.push(end);
        }
        let key = MixKey::new(&[self.key.at(window as u64)]);
        Window {
            rows: Permutation::new(key, end),
            hint: SearchHint::new(&before),
            positions,
            ranks: (blocks.iter().zip(&before))
                .map(|(block, before)| self.selection.rank(block.rows.start).wrapping_sub(*before))
                .collect(),
            blocks,
            before,
            selection: self.selection.clone(),
        }
    }

    /// Returns the places in the order of blocks that a window takes: all windows have equally many, or one
    /// less, so that none is left at the end of the epoch that mixes a handful.
    fn slots(&self, window: u64) -> Range<u64> {
        let blocks = self.blocks.len;
        let windows = u128::from(blocks.div_ceil(self.size.window_blocks));
        let bound = |window: u64| (u128::from(window) * u128::from(blocks) / windows) as u64;
        bound(window)..bound(window + 1)
    }

    fn block(&self, slot: u64) -> Block {
        let start = self.blocks.get(slot) * self.size.block_rows;
        let end = start.saturating_add(self.size.block_rows).min(self.rows);
        Block { rows: start..end, wanted: self.selection.rank(end) - self.selection.rank(start) }
    }
}
