//! Which positions of an epoch each batch (or stack of batches) of this process holds.

use std::ops::Range;

use vramfit_base::Result;

use super::options::LoaderOptions;
use crate::order::{Batches, RemainderPolicy, ShardOptions};

/// The batches of an epoch from a position on. Where batches are stacked, a *batch* is a whole stack here.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchPlan {
    batches: Batches,
    batch_size: u64,
    stacked_batches: u64,
    shard: ShardOptions,
    start: u64,
    /// Batches from `start` on.
    pub(super) count: u64,
    /// The position after the last row that is handed out.
    end: u64,
}

/// What one batch holds.
#[derive(Clone, Debug)]
pub(super) struct BatchSpec {
    pub(super) sequence: u64,
    /// The position of each row in ascending order; padding repeats the last real ones at the end.
    pub(super) positions: Vec<u64>,
    /// How many rows of each stacked batch are real.
    pub(super) valid: Vec<u64>,
    /// The position after it, all processes together.
    pub(super) end: u64,
}

impl BatchPlan {
    /// Plans the batches of an epoch of `rows` rows from position `start` on.
    ///
    /// # Errors
    /// `invalid-argument` when there is no batch, or it cannot be divided among the processes.
    pub(super) fn new(options: &LoaderOptions, rows: u64, start: u64) -> Result<BatchPlan> {
        let (batch_size, remainder) = (options.batch_size, options.remainder);
        let stacked_batches = options.stacked_batches.unwrap_or(1);
        let batches = Batches::new(rows, batch_size, remainder)?;
        if let Some(batch) = batches.get(0) {
            batch.shard(options.shard)?;
        }
        let left = rows.saturating_sub(start);
        let (count, end) = match remainder {
            RemainderPolicy::Drop => {
                let count = left / batch_size / stacked_batches;
                (count, start + count * stacked_batches * batch_size)
            }
            RemainderPolicy::Pad => (left.div_ceil(batch_size).div_ceil(stacked_batches), rows),
        };
        Ok(BatchPlan {
            batches,
            batch_size,
            stacked_batches,
            shard: options.shard,
            start,
            count,
            end,
        })
    }

    /// Returns the positions of a batch, all processes together.
    pub(super) fn batch_positions(&self, sequence: u64) -> Range<u64> {
        let size = self.stacked_batches * self.batch_size;
        let start = self.start + sequence * size;
        start..(start + size).min(self.end)
    }

    /// Returns the positions of all batches, all processes together.
    pub(super) fn positions(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Returns how many batches have positions in a range that overlaps with those of the plan.
    pub(super) fn batches_in(&self, positions: &Range<u64>) -> u64 {
        let size = self.stacked_batches * self.batch_size;
        let first = positions.start.max(self.start) - self.start;
        let last = positions.end.min(self.end) - 1 - self.start;
        last / size - first / size + 1
    }

    /// Returns what a batch holds in this process.
    pub(super) fn batch(&self, sequence: u64) -> Result<BatchSpec> {
        let all = self.batch_positions(sequence);
        let shard_size = self.batch_size / self.shard.count;
        let mut positions = Vec::with_capacity((self.stacked_batches * shard_size) as usize);
        let mut valid = Vec::with_capacity(self.stacked_batches as usize);
        for step in 0..self.stacked_batches {
            let Some(batch) = self.batches.at(all.start + step * self.batch_size) else {
                // The epoch ends inside a stack: the rest of it is padding.
                valid.push(0);
                positions.extend((0..shard_size).map(|_| all.end - 1));
                continue;
            };
            let slice = batch.shard(self.shard)?;
            valid.push(slice.positions.end - slice.positions.start);
            positions.extend(slice.positions);
            positions.extend((0..slice.padding).map(|_| slice.repeated));
        }
        Ok(BatchSpec { sequence, positions, valid, end: all.end })
    }
}
