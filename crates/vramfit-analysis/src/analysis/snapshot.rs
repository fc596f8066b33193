//! What was allocated at an earlier moment, told from what is allocated now.

use crate::replay::Block;

/// Remembers one moment. It costs a comparison for each block freed after it, and memory for those
/// blocks that were there then and are not now: never more than there were.
#[derive(Debug, Default)]
pub(super) struct LiveSnapshot {
    /// Number of the first allocation after the moment.
    next: u64,
    /// Blocks of before that were freed since.
    gone: Vec<Block>,
}

impl LiveSnapshot {
    /// Makes now the moment; `next` is the number of the next allocation.
    pub(super) fn capture(&mut self, next: u64) {
        self.next = next;
        self.gone.clear();
    }

    /// Returns `true` if there is a moment.
    pub(super) fn is_captured(&self) -> bool {
        self.next > 0
    }

    /// Notes that a block was freed.
    #[inline]
    pub(super) fn on_freed(&mut self, block: &Block) {
        if block.number < self.next {
            self.gone.push(*block);
        }
    }

    /// Returns what was allocated at the moment, given what is allocated now; in no order.
    pub(super) fn blocks<'a>(
        &'a self,
        live: impl Iterator<Item = &'a Block>,
    ) -> impl Iterator<Item = &'a Block> {
        let still = live.filter(|block| block.number < self.next);
        still.chain(&self.gone)
    }
}
