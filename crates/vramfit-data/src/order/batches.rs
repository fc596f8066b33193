//! An epoch cut into batches, and each batch into the equal shares of several processes.
//!
//! A batch is a range of positions of the one global order, whoever takes part. So the order does not
//! change with the number of processes, nor when that number changes in the middle of an epoch; and as a
//! position counts rows and not batches, not even when the batch size does.

use std::ops::Range;

use vramfit_core::{Error, ErrorKind, Result};

/// What becomes of the rows that do not fill the last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// They are left out, which are others in each epoch of a shuffled order.
    Drop,
    /// The batch is filled up by repeating its last row, and says how many rows are real. Every batch
    /// has the same shape, so nothing is compiled twice.
    Pad,
}

/// Which of how many processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// This process, from 0.
    pub rank: u64,
    /// All processes.
    pub processes: u64,
}

impl World {
    /// A single process.
    pub const ALONE: World = World {
        rank: 0,
        processes: 1,
    };
}

/// How an epoch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    rows: u64,
    size: u64,
    last: Last,
}

/// One batch of all processes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The positions of the epoch that it holds: real rows only.
    pub positions: Range<u64>,
    /// Its size with repeated rows.
    pub size: u64,
}

/// What one process takes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The positions of the epoch that it takes: real rows only, perhaps none.
    pub positions: Range<u64>,
    /// How many times [`repeated`](Self::repeated) follows, so that all shares have one size.
    pub padding: u64,
    /// The position that fills the share up: the last real one of the whole batch.
    pub repeated: u64,
}

impl Batches {
    /// Returns the cut of an epoch of `rows` rows into batches of `size`, all processes together.
    ///
    /// # Errors
    /// `invalid-argument` when the size is 0, or when not one batch would be left.
    pub fn new(rows: u64, size: u64, last: Last) -> Result<Self> {
        let refuse = |message: String| Error::new(ErrorKind::InvalidArgument, message);
        if size == 0 {
            return Err(refuse("a batch of 0 rows holds nothing".into())
                .hint("take batches of 1 row or more"));
        }
        if last == Last::Drop && size > rows {
            return Err(refuse(format!(
                "a batch of {size} rows is larger than the {rows} rows there are, and the last one is dropped"
            ))
            .hint(format!("take batches of {rows} rows at most")));
        }
        Ok(Batches { rows, size, last })
    }

    /// Returns how many batches an epoch has.
    pub fn count(&self) -> u64 {
        match self.last {
            Last::Drop => self.rows / self.size,
            Last::Pad => self.rows.div_ceil(self.size),
        }
    }

    /// Returns the batch that begins at a position, or `None` when the epoch has ended there.
    pub fn at(&self, position: u64) -> Option<Batch> {
        let left = self.rows.checked_sub(position)?;
        let valid = match self.last {
            Last::Drop if left < self.size => 0,
            _ => left.min(self.size),
        };
        (valid > 0).then(|| Batch {
            positions: position..position + valid,
            size: self.size,
        })
    }

    /// Returns batch `index` of the epoch, from 0, or `None` when there are fewer.
    pub fn get(&self, index: u64) -> Option<Batch> {
        self.at(index.checked_mul(self.size)?)
    }
}

impl Batch {
    /// Returns the share of one process: the shares of all, in the order of ranks, are the batch.
    ///
    /// # Errors
    /// `invalid-argument` when the batch cannot be divided equally, or there is no such process.
    pub fn share(&self, world: World) -> Result<Share> {
        let World { rank, processes } = world;
        if rank >= processes {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("there is no process {rank} among {processes}, counted from 0"),
            )
            .hint("number the processes from 0, each with a number of its own"));
        }
        if !self.size.is_multiple_of(processes) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a batch of {} rows cannot be divided equally among {processes} processes",
                    self.size
                ),
            )
            .hint(format!(
                "take a batch of {} rows",
                self.size.next_multiple_of(processes)
            )));
        }
        let part = self.size / processes;
        let Range { start, end } = self.positions;
        let from = (start + rank * part).min(end);
        let to = (from + part).min(end);
        Ok(Share {
            positions: from..to,
            padding: part - (to - from),
            repeated: end - 1,
        })
    }
}
