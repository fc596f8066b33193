//! Which row comes when: a pure function of the file's layout, a seed and a position.
//!
//! Nothing is remembered between batches, so any batch of any epoch can be asked for at once, by any
//! process, and a run is continued from a few numbers ([`State`]). The order is promised to be the same
//! on every machine and in every later version (`docs/concepts/row-order.md`); the tests hold its values.
//!
//! [`choose`] finds the engine for a file and a budget, [`Order`] fixes everything that decides the
//! order, [`Epoch`] is one pass over the rows, [`Batches`] cuts it. Reading the rows is the business of
//! others: this module touches no file.

mod batches;
mod choice;
mod epoch;
mod permutation;
mod pool;
mod split;
mod state;

use serde::{Deserialize, Serialize};
use vramfit_core::{Error, ErrorKind, Result};

pub use batches::{Batch, Batches, Last, Share, World};
pub use choice::{Choice, Layout, MIN_BLOCKS_PER_POOL, Storage, choose};
pub use epoch::Epoch;
pub use pool::{Block, Pool};
pub use split::{Manner, Part, Split};
pub use state::{Fingerprint, STATE_SCHEMA, State};

/// What random numbers are drawn for, so that no two uses share them. The numbers are part of the
/// promise and never change.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Rows = 1,
    Blocks = 2,
    Pool = 3,
    Split = 4,
}

/// How the rows of an epoch are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Engine {
    /// As they are in the file.
    Sequential,
    /// One permutation of all rows; each is fetched from where it lies.
    Gather,
    /// Blocks of consecutive rows in random order, then the rows of each pool of blocks.
    BlockPool(Pools),
    /// The same where a block is a band of chunks that share their rows.
    ChunkPool(Pools),
}

/// The sizes of a shuffle on two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// Rows in a block; the last block of the file may have fewer.
    pub block_rows: u64,
    /// Blocks whose rows are mixed with each other, at most; pools share the blocks of an epoch evenly.
    pub pool_blocks: u64,
}

impl Engine {
    /// Returns the sizes of a shuffle on two levels, if it is one.
    pub fn pools(&self) -> Option<Pools> {
        match self {
            Engine::BlockPool(pools) | Engine::ChunkPool(pools) => Some(*pools),
            Engine::Sequential | Engine::Gather => None,
        }
    }

    /// Returns the engine's name as people read it.
    pub fn name(&self) -> &'static str {
        match self {
            Engine::Sequential => "sequential",
            Engine::Gather => "global gather",
            Engine::BlockPool(_) => "block pool",
            Engine::ChunkPool(_) => "chunk pool",
        }
    }
}

/// Everything that decides the order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    rows: u64,
    seed: u64,
    engine: Engine,
    part: Part,
}

impl Order {
    /// Returns the order of a file with `rows` rows, or of a part of them.
    ///
    /// # Errors
    /// `invalid-argument` when there are no rows or too many, or when a block or a pool has no size.
    pub fn new(rows: u64, seed: u64, engine: Engine, part: Part) -> Result<Self> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if rows == 0 {
            return refuse("there are no rows to put in an order".into());
        }
        if rows > permutation::MAX_ELEMENTS {
            return refuse(format!(
                "{rows} rows are more than the 2^63 that can be ordered"
            ));
        }
        if engine
            .pools()
            .is_some_and(|pools| pools.block_rows == 0 || pools.pool_blocks == 0)
        {
            return refuse("blocks and pools of a shuffle need a size above 0".into());
        }
        if let Part::Train(split) | Part::Validation(split) = part {
            split.must_be_of(rows)?;
        }
        Ok(Order {
            rows,
            seed,
            engine,
            part,
        })
    }

    /// Returns how the rows are ordered.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the part of the rows that is gone through.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Returns the rows of the file, in whatever part they are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns how many rows one epoch has: those of the part.
    pub fn len(&self) -> u64 {
        self.selection().len()
    }

    /// Says whether an epoch has no rows; an order that was made has some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one pass over the rows. Epochs are counted from 0 and all differ.
    ///
    /// Takes no time for [`Engine::Sequential`], and less than a millisecond for [`Engine::Gather`]. For pools it
    /// counts the blocks once, about 30 ns each, because blocks can hold different numbers of rows of a part.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        Epoch::new(*self, epoch)
    }

    fn selection(&self) -> split::Selection {
        split::Selection::new(self.rows, self.part)
    }
}
