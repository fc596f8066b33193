//! The table of chunks of a pool, linked in address order within each region.
//!
//! Slots are reused last in, first out, and a reused slot keeps the requested size it last had:
//! both show in XLA's out-of-memory dump (`next N`, `Requested Size`), so both are kept as in
//! `bfc_allocator.cc` (openxla/xla, August 2026). Which chunks are free for whom is the business
//! of [`super::free_set`] and its users.

/// The slot of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChunkHandle(pub(super) u32);

impl ChunkHandle {
    /// No chunk: the end of a region's list.
    pub(super) const NONE: ChunkHandle = ChunkHandle(u32::MAX);
}

/// Which end of a partitioned pool a chunk belongs to. Everything is `Lower` in a classic pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkTag {
    /// In use by, or a hole kept for, the lower end.
    Lower,
    /// In use by, or a hole kept for, the upper end.
    Upper,
    /// The one free chunk between the ends.
    Gap,
}

/// One chunk: a stretch of a region that is in use as a whole or free as a whole.
///
/// The fields are in this order because address and size side by side would be read as one 16-byte
/// value right after one of them was written, which stalls the processor: measured, a fifth of the
/// time of an operation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct ChunkSlot {
    pub(super) address: u64,
    pub(super) requested: u64,
    pub(super) size: u64,
    pub(super) prev: ChunkHandle,
    pub(super) next: ChunkHandle,
    /// Index of the label that was current at allocation; see [`super::Allocator::set_label`].
    pub(super) label: u32,
    pub(super) tag: ChunkTag,
    pub(super) in_use: bool,
}

/// All chunks of a pool.
#[derive(Debug)]
pub(super) struct ChunkTable {
    slots: Vec<ChunkSlot>,
    unused: ChunkHandle,
}

impl std::ops::Index<ChunkHandle> for ChunkTable {
    type Output = ChunkSlot;

    fn index(&self, handle: ChunkHandle) -> &ChunkSlot {
        &self.slots[handle.0 as usize]
    }
}

impl std::ops::IndexMut<ChunkHandle> for ChunkTable {
    fn index_mut(&mut self, handle: ChunkHandle) -> &mut ChunkSlot {
        &mut self.slots[handle.0 as usize]
    }
}

impl ChunkTable {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        ChunkTable { slots: Vec::new(), unused: ChunkHandle::NONE }
    }

    /// Adds a free chunk between two others.
    fn occupy(
        &mut self,
        (address, size): (u64, u64),
        tag: ChunkTag,
        prev: ChunkHandle,
        next: ChunkHandle,
    ) -> ChunkHandle {
        let mut slot =
            ChunkSlot { address, size, requested: 0, prev, next, label: 0, tag, in_use: false };
        if self.unused == ChunkHandle::NONE {
            let handle = ChunkHandle(self.slots.len() as u32);
            self.slots.push(slot);
            return handle;
        }
        let handle = self.unused;
        let old = &mut self.slots[handle.0 as usize];
        self.unused = old.next;
        slot.requested = old.requested;
        *old = slot;
        handle
    }

    /// Adds a free chunk for a new region, after `prev` if the region grew.
    pub(super) fn push(
        &mut self,
        address: u64,
        size: u64,
        tag: ChunkTag,
        prev: ChunkHandle,
    ) -> ChunkHandle {
        let handle = self.occupy((address, size), tag, prev, ChunkHandle::NONE);
        if prev != ChunkHandle::NONE {
            self[prev].next = handle;
        }
        handle
    }

    /// Cuts a free chunk after `size` bytes and returns the new chunk behind it, also free and
    /// with the same tag.
    pub(super) fn split(&mut self, handle: ChunkHandle, size: u64) -> ChunkHandle {
        let whole = self[handle];
        let behind = (whole.address + size, whole.size - size);
        let rest = self.occupy(behind, whole.tag, handle, whole.next);
        let first = &mut self[handle];
        first.size = size;
        first.next = rest;
        if whole.next != ChunkHandle::NONE {
            self[whole.next].prev = rest;
        }
        rest
    }

    /// Joins a free chunk with the free chunk after it; unequal tags make the gap.
    pub(super) fn merge_next(&mut self, handle: ChunkHandle) {
        let second_handle = self[handle].next;
        let second = self[second_handle];
        let first = &mut self[handle];
        first.size += second.size;
        first.next = second.next;
        if first.tag != second.tag {
            first.tag = ChunkTag::Gap;
        }
        if second.next != ChunkHandle::NONE {
            self[second.next].prev = handle;
        }
        self.discard(second_handle);
    }

    /// Gives a slot back for reuse.
    pub(super) fn discard(&mut self, handle: ChunkHandle) {
        let unused = self.unused;
        let slot = &mut self[handle];
        slot.next = unused;
        slot.in_use = false;
        self.unused = handle;
    }

    /// Walks the chunks of one region in address order, beginning with its first.
    pub(super) fn walk(
        &self,
        first: ChunkHandle,
    ) -> impl Iterator<Item = (ChunkHandle, &ChunkSlot)> {
        let mut at = first;
        std::iter::from_fn(move || {
            if at == ChunkHandle::NONE {
                return None;
            }
            let handle = at;
            let slot = &self[handle];
            at = slot.next;
            Some((handle, slot))
        })
    }
}

impl std::fmt::Display for ChunkTag {
    /// Writes `lower`, `upper` or `gap`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ChunkTag::Lower => "lower",
            ChunkTag::Upper => "upper",
            ChunkTag::Gap => "gap",
        })
    }
}
