//! One pass over the rows: which row stands at which position.

use std::ops::Range;

use super::permutation::Permutation;
use super::split::Selection;
use super::window::{Window, WindowTable};
use super::{Engine, Order, Purpose};
use crate::splitmix::MixKey;

/// The order of the rows in one epoch.
#[derive(Clone, Debug)]
pub struct Epoch {
    selection: Selection,
    walk: RowOrder,
}

#[derive(Clone, Debug)]
enum RowOrder {
    Sequential,
    Global(Permutation),
    Windows(Box<WindowTable>),
}

impl Epoch {
    pub(super) fn new(order: &Order, epoch: u64) -> Self {
        let selection = order.drawn(epoch);
        let walk = match order.engine {
            Engine::Sequential => RowOrder::Sequential,
            Engine::GlobalShuffle => {
                let key = MixKey::new(&[order.seed, epoch, Purpose::Rows as u64]);
                RowOrder::Global(Permutation::new(key, selection.len()))
            }
            Engine::BlockWindows(size) | Engine::ChunkWindows(size) => {
                let selection = selection.clone();
                let table = WindowTable::new(size, order.rows, selection, order.seed, epoch);
                RowOrder::Windows(Box::new(table))
            }
        };
        Epoch { selection, walk }
    }

    /// Returns the number of positions.
    pub fn len(&self) -> u64 {
        self.selection.len()
    }

    /// Returns `true` if there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the rows at `positions`, which end at or before [`len`](Self::len).
    ///
    /// No row before them is looked at. With windows, each window that is touched is laid out once, which
    /// costs as much as it has blocks; a reader that keeps a window in memory asks [`window`](Self::window).
    pub fn append_rows(&self, positions: Range<u64>, rows: &mut Vec<u64>) {
        match &self.walk {
            RowOrder::Sequential => rows.extend(positions.map(|at| self.selection.select(at))),
            RowOrder::Global(permutation) => {
                rows.extend(positions.map(|at| self.selection.select(permutation.get(at))));
            }
            RowOrder::Windows(table) => {
                let mut at = positions.start;
                while at < positions.end {
                    let window = table.window(table.window_at(at));
                    let end = positions.end.min(window.positions().end);
                    rows.extend((at..end).map(|at| window.get(at).1));
                    at = end;
                }
            }
        }
    }

    /// Returns how many windows the epoch has, or `None` where it is not made of windows.
    pub fn window_count(&self) -> Option<usize> {
        match &self.walk {
            RowOrder::Windows(table) => Some(table.count()),
            _ => None,
        }
    }

    /// Returns a window, counted from 0 in the order of positions, or `None` where there is none.
    pub fn window(&self, window: usize) -> Option<Window> {
        match &self.walk {
            RowOrder::Windows(table) if window < table.count() => Some(table.window(window)),
            _ => None,
        }
    }

    /// Returns which window serves a position, or `None` where none does.
    pub fn window_at(&self, position: u64) -> Option<usize> {
        match &self.walk {
            RowOrder::Windows(table) if position < self.len() => Some(table.window_at(position)),
            _ => None,
        }
    }
}
