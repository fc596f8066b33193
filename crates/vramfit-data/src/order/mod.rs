//! Which row comes when: a pure function of the file's layout, a seed and a position.
//!
//! Nothing is remembered between batches, so any batch of any epoch can be asked for at once, by any
//! process, and a run resumes from a few numbers ([`LoaderState`]). The order is promised to be the same
//! on every machine and in every later version (`docs/concepts/row-order.md`); the tests hold its values.
//!
//! [`choose`] finds the engine for a file and a budget, [`Order`] fixes everything that decides the
//! order, [`Epoch`] is one pass over the rows, [`Batches`] cuts it. Reading the rows is the business of
//! others: this module touches no file.

mod batches;
mod choice;
mod epoch;
mod file_digests;
mod fold;
mod listed;
mod permutation;
mod split;
mod state;
mod weights;
mod window;

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

pub use batches::{Batch, Batches, RemainderPolicy, ShardOptions, ShardSlice};
pub use choice::{EngineChoice, Layout, MIN_BLOCKS_PER_WINDOW, Storage, choose};
pub use epoch::Epoch;
pub use file_digests::FileDigests;
pub use fold::Fold;
pub use listed::ListedRows;
pub use split::{RowSubset, Split, SplitMode, ThreeWaySplit};
pub use state::{DataFingerprint, LoaderState, STATE_SCHEMA};
pub use weights::RowWeights;
pub use window::{Block, Window};

/// What random numbers are drawn for, so that no two uses share them. The numbers are part of the
/// promise and never change.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Rows = 1,
    Blocks = 2,
    Window = 3,
    Split = 4,
    Folds = 5,
    Weights = 6,
}

/// How the rows of an epoch are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Engine {
    /// As they are in the file.
    Sequential,
    /// One permutation of all rows, each of which is read by itself.
    GlobalShuffle,
    /// Blocks of consecutive rows in random order, then the rows of each window of blocks.
    BlockWindows(WindowSize),
    /// The same where a block is a band of chunks that share their rows.
    ChunkWindows(WindowSize),
}

/// The sizes of a shuffle on two levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Rows in a block; the last block of the file may have fewer.
    pub block_rows: u64,
    /// Blocks whose rows are mixed with each other, at most; windows share the blocks of an epoch evenly.
    pub window_blocks: u64,
}

impl Engine {
    /// Returns the sizes of a shuffle on two levels, if it is one.
    pub fn window_size(&self) -> Option<WindowSize> {
        match self {
            Engine::BlockWindows(size) | Engine::ChunkWindows(size) => Some(*size),
            Engine::Sequential | Engine::GlobalShuffle => None,
        }
    }

    /// Returns the engine's name as people read it.
    pub fn name(&self) -> &'static str {
        match self {
            Engine::Sequential => "sequential",
            Engine::GlobalShuffle => "global shuffle",
            Engine::BlockWindows(_) => "block windows",
            Engine::ChunkWindows(_) => "chunk windows",
        }
    }
}

/// Everything that decides the order of rows. A row is a sample here, whatever rows of the file that has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    rows: u64,
    pub(crate) seed: u64,
    engine: Engine,
    /// Which rows of the file an epoch has, of those that are listed.
    pub(crate) subset: RowSubset,
    /// Which rows are listed; all if there is no list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<ListedRows>,
    /// How often each of these rows is drawn; once if there are no weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<RowWeights>,
}

impl Order {
    /// Returns the order of a file with `rows` rows, or of a part of them.
    ///
    /// # Errors
    /// `invalid-argument` when there are no rows or too many, or when a block or a window has no size.
    pub fn new(rows: u64, seed: u64, engine: Engine, subset: RowSubset) -> Result<Self> {
        let order = Order { rows, seed, engine, subset, listed: None, weights: None };
        order.ensure_valid().map(|()| order)
    }

    /// Checks an order that was saved. The rows that are listed are not in it.
    ///
    /// # Errors
    /// As [`Order::new`].
    fn ensure_valid(&self) -> Result<()> {
        let Order { rows, engine, .. } = *self;
        let invalid = |message: String| Err(Error::invalid_argument(message));
        if rows == 0 {
            return invalid("there are no rows to order".into());
        }
        if rows > permutation::MAX_ELEMENTS {
            return invalid(format!("{rows} rows exceed the limit of 2^63"));
        }
        if engine.window_size().is_some_and(|size| size.block_rows == 0 || size.window_blocks == 0)
        {
            return invalid("the blocks and windows of a shuffle must not be empty".into());
        }
        let listed = self.listed.as_ref().map_or(rows, ListedRows::len);
        if listed == 0 || listed > rows {
            return invalid(format!("{listed} of {rows} rows are listed"));
        }
        self.subset.ensure_matches(listed)?;
        match &self.weights {
            Some(weights) if weights.len() != self.len() => {
                invalid(format!("{} of {} rows have a weight", weights.len(), self.len()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the order in which rows are drawn with replacement, as often as their weights say.
    ///
    /// # Arguments
    /// `weights` has one number for each row of the file.
    ///
    /// # Errors
    /// `invalid-argument` when there is another number of them, one is negative, NaN or infinite, or those of all rows
    /// of an epoch are 0.
    pub fn weighted(self, weights: &[f64]) -> Result<Self> {
        if weights.len() as u64 != self.rows {
            return Err(Error::invalid_argument(format!(
                "there are {} weights, and {} samples",
                weights.len(),
                self.rows
            ))
            .hint("give each sample one weight, also those that are not selected"));
        }
        let selection = self.selection();
        let rows = (0..selection.len()).map(|rank| selection.select(rank));
        let weights = RowWeights::new(rows.map(|row| (row, weights[row as usize])))?;
        Ok(Order { weights: Some(weights), ..self })
    }

    /// Returns the order of some of the rows, of which `subset` takes a part.
    ///
    /// # Errors
    /// As [`Order::new`]; `invalid-argument` when a row is listed that there is not.
    pub fn listed(
        rows: u64,
        seed: u64,
        engine: Engine,
        subset: RowSubset,
        listed: ListedRows,
    ) -> Result<Self> {
        if let Some(last) = listed.last().filter(|last| *last >= rows) {
            return Err(Error::invalid_argument(format!(
                "row {last} is listed, and there are {rows} rows"
            )));
        }
        let order = Order { rows, seed, engine, subset, listed: Some(listed), weights: None };
        order.ensure_valid().map(|()| order)
    }

    /// Returns the order of the same rows that another engine makes.
    pub(crate) fn with_engine(&self, engine: Engine) -> Order {
        Order { engine, ..self.clone() }
    }

    /// Returns how the rows are ordered.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns the number of rows of the file.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns how many rows one epoch has: those of the subset.
    pub fn len(&self) -> u64 {
        self.selection().len()
    }

    /// Returns `true` if an epoch has no rows; an order that was made has some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one pass over the rows. Epochs are counted from 0 and all differ.
    ///
    /// Takes no time for [`Engine::Sequential`], and less than a millisecond for [`Engine::GlobalShuffle`]. For windows it
    /// counts the blocks once, about 30 ns each, because blocks can hold different numbers of rows of a subset.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        Epoch::new(self, epoch)
    }

    fn selection(&self) -> split::Selection {
        split::Selection::new(self.rows, self.subset, self.listed.as_ref())
    }

    /// Returns the rows of an epoch in the order of the file, those that are drawn several times as often.
    fn drawn(&self, epoch: u64) -> split::Selection {
        let selection = self.selection();
        match &self.weights {
            Some(weights) => selection.with_draws(weights.draws(self.seed, epoch)),
            None => selection,
        }
    }
}
