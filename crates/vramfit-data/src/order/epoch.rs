//! One pass over the rows: which row stands at which position.

use std::ops::Range;

use super::permutation::Permutation;
use super::pool::{Pool, PoolTable};
use super::split::Selection;
use super::{Engine, Order, Purpose};
use crate::mix::Key;

/// The order of the rows in one epoch.
#[derive(Clone, Debug)]
pub struct Epoch {
    selection: Selection,
    walk: Walk,
}

#[derive(Clone, Debug)]
enum Walk {
    Sequential,
    Gather(Permutation),
    Pools(PoolTable),
}

impl Epoch {
    pub(super) fn new(order: Order, epoch: u64) -> Self {
        let selection = order.selection();
        let walk = match order.engine {
            Engine::Sequential => Walk::Sequential,
            Engine::Gather => {
                let key = Key::new(&[order.seed, epoch, Purpose::Rows as u64]);
                Walk::Gather(Permutation::new(key, selection.len()))
            }
            Engine::BlockPool(pools) | Engine::ChunkPool(pools) => Walk::Pools(PoolTable::new(
                pools, order.rows, selection, order.seed, epoch,
            )),
        };
        Epoch { selection, walk }
    }

    /// Returns the number of positions.
    pub fn len(&self) -> u64 {
        self.selection.len()
    }

    /// Says whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the rows at `positions`, which end at or before [`len`](Self::len).
    ///
    /// No row before them is looked at. With pools, each pool that is touched is laid out once, which
    /// costs as much as it has blocks; a reader that keeps a pool in memory asks [`pool`](Self::pool).
    pub fn append_rows(&self, positions: Range<u64>, rows: &mut Vec<u64>) {
        match &self.walk {
            Walk::Sequential => rows.extend(positions.map(|at| self.selection.select(at))),
            Walk::Gather(permutation) => {
                rows.extend(positions.map(|at| self.selection.select(permutation.get(at))));
            }
            Walk::Pools(table) => {
                let mut at = positions.start;
                while at < positions.end {
                    let pool = table.pool(table.serving(at));
                    let end = positions.end.min(pool.positions().end);
                    rows.extend((at..end).map(|at| pool.get(at).1));
                    at = end;
                }
            }
        }
    }

    /// Returns how many pools the epoch has, or `None` where it is not made of pools.
    pub fn pools(&self) -> Option<usize> {
        match &self.walk {
            Walk::Pools(table) => Some(table.count()),
            _ => None,
        }
    }

    /// Returns a pool, counted from 0 in the order of positions, or `None` where there is none.
    pub fn pool(&self, pool: usize) -> Option<Pool> {
        match &self.walk {
            Walk::Pools(table) if pool < table.count() => Some(table.pool(pool)),
            _ => None,
        }
    }

    /// Returns which pool serves a position, or `None` where none does.
    pub fn pool_at(&self, position: u64) -> Option<usize> {
        match &self.walk {
            Walk::Pools(table) if position < self.len() => Some(table.serving(position)),
            _ => None,
        }
    }
}
