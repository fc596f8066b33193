//! An epoch cut into batches, and each batch into equal shards, one per process.
//!
//! A batch is a range of positions of the one global order, whoever takes part. So the order does not
//! change with the number of processes, nor when that number changes in the middle of an epoch; and as a
//! position counts rows and not batches, not even when the batch size does.

use std::ops::Range;

use vramfit_base::{Error, Result};

/// What happens to the rows that do not fill the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainderPolicy {
    /// They are dropped; a shuffled order drops other rows in each epoch.
    Drop,
    /// The batch is padded by repeating its last row, and says how many rows are real. Every batch
    /// has the same shape, so nothing is compiled twice.
    Pad,
}

/// Which shard of each batch this process reads, as Grain's `ShardOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// This process, from 0.
    pub index: u64,
    /// All processes.
    pub count: u64,
}

impl ShardOptions {
    /// A single process.
    pub const SINGLE: ShardOptions = ShardOptions { index: 0, count: 1 };
}

/// The batches of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    rows: u64,
    size: u64,
    remainder: RemainderPolicy,
}

/// One batch of all processes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The positions of the epoch that it holds: real rows only.
    pub positions: Range<u64>,
    /// Its size, padding included.
    pub size: u64,
}

/// The rows of a batch that one process reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSlice {
    /// The positions of the epoch that it holds: real rows only, perhaps none.
    pub positions: Range<u64>,
    /// How many times [`repeated`](Self::repeated) follows, so that all shards have one size.
    pub padding: u64,
    /// The position that pads the shard: the last real one of the whole batch.
    pub repeated: u64,
}

impl Batches {
    /// Divides an epoch of `rows` rows into batches of `size`, all processes together.
    ///
    /// # Errors
    /// `invalid-argument` when the size is 0, or when not one batch would be left.
    pub fn new(rows: u64, size: u64, remainder: RemainderPolicy) -> Result<Self> {
        let invalid = |message: String| Error::invalid_argument(message);
        if size == 0 {
            return Err(invalid("the batch size is 0".into()).hint("use a batch size of 1 or more"));
        }
        if remainder == RemainderPolicy::Drop && size > rows {
            return Err(invalid(format!(
                "a batch size of {size} exceeds the {rows} rows available, and incomplete batches are dropped"
            ))
            .hint(format!("use a batch size of at most {rows}")));
        }
        Ok(Batches { rows, size, remainder })
    }

    /// Returns how many batches an epoch has.
    pub fn count(&self) -> u64 {
        match self.remainder {
            RemainderPolicy::Drop => self.rows / self.size,
            RemainderPolicy::Pad => self.rows.div_ceil(self.size),
        }
    }

    /// Returns the batch that starts at a position, or `None` at the end of the epoch.
    pub fn at(&self, position: u64) -> Option<Batch> {
        let left = self.rows.checked_sub(position)?;
        let valid = match self.remainder {
            RemainderPolicy::Drop if left < self.size => 0,
            _ => left.min(self.size),
        };
        (valid > 0).then(|| Batch { positions: position..position + valid, size: self.size })
    }

    /// Returns batch `index` of the epoch, from 0, or `None` when there are fewer.
    pub fn get(&self, index: u64) -> Option<Batch> {
        self.at(index.checked_mul(self.size)?)
    }
}

impl Batch {
    /// Returns the slice of one process: the slices of all, in the order of their index, are the batch.
    ///
    /// # Errors
    /// `invalid-argument` when the batch cannot be divided equally, or there is no such process.
    pub fn shard(&self, shard: ShardOptions) -> Result<ShardSlice> {
        let ShardOptions { index, count } = shard;
        if index >= count {
            return Err(Error::invalid_argument(format!(
                "process number {index} is out of range for {count} processes"
            ))
            .hint("number the processes from 0, each with its own number"));
        }
        if !self.size.is_multiple_of(count) {
            return Err(Error::invalid_argument(format!(
                "a batch of {} rows cannot be divided equally among {count} processes",
                self.size
            ))
            .hint(format!("use a batch size of {}", self.size.next_multiple_of(count))));
        }
        let shard_size = self.size / count;
        let Range { start, end } = self.positions;
        let from = (start + index * shard_size).min(end);
        let to = (from + shard_size).min(end);
        Ok(ShardSlice { positions: from..to, padding: shard_size - (to - from), repeated: end - 1 })
    }
}
