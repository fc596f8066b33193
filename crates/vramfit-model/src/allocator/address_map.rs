//! From the address of a chunk in use to its slot.
//!
//! XLA keeps an array with an entry for every 256 bytes of the pool, which costs a thirty-second of the
//! pool in host memory and seconds to clear. This is a small open-addressing table of slots instead.
//! The addresses themselves are in the slots, which are needed next anyway.

use super::chunk_table::{ChunkHandle, ChunkTable};

/// A table from addresses to slots.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// Slots; [`ChunkHandle::NONE`] is a free bucket. The length is a power of two.
    buckets: Vec<ChunkHandle>,
    used: usize,
    shift: u32,
}

const INITIAL_CAPACITY: usize = 64;
/// At most one bucket in four is used: a bucket is only four bytes, and most searches then end at the
/// first one, which the processor can guess.
const BUCKETS_PER_ENTRY: usize = 4;

impl AddressMap {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        AddressMap::with_capacity(INITIAL_CAPACITY)
    }

    fn with_capacity(buckets: usize) -> Self {
        AddressMap {
            buckets: vec![ChunkHandle::NONE; buckets],
            used: 0,
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    /// Returns where an address would be if nothing else were there.
    fn bucket_of(&self, address: u64) -> usize {
        // Multiplying by 2^64 divided by the golden ratio spreads multiples of 256 evenly over the
        // upper bits.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn next(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    fn find(&self, chunks: &ChunkTable, address: u64) -> Option<usize> {
        let mut bucket = self.bucket_of(address);
        loop {
            let handle = self.buckets[bucket];
            if handle == ChunkHandle::NONE {
                return None;
            }
            if chunks[handle].address == address {
                return Some(bucket);
            }
            bucket = self.next(bucket);
        }
    }

    /// Enters a slot whose address is not there yet.
    pub(super) fn insert(&mut self, chunks: &ChunkTable, handle: ChunkHandle) {
        debug_assert!(!self.contains(chunks, chunks[handle].address));
        if self.used * BUCKETS_PER_ENTRY >= self.buckets.len() {
            let mut larger = AddressMap::with_capacity(self.buckets.len() * 2);
            for &handle in self.buckets.iter().filter(|&&handle| handle != ChunkHandle::NONE) {
                larger.insert(chunks, handle);
            }
            *self = larger;
        }
        let mut bucket = self.bucket_of(chunks[handle].address);
        while self.buckets[bucket] != ChunkHandle::NONE {
            bucket = self.next(bucket);
        }
        self.buckets[bucket] = handle;
        self.used += 1;
    }

    /// Strikes an address out and returns its slot.
    pub(super) fn remove(&mut self, chunks: &ChunkTable, address: u64) -> Option<ChunkHandle> {
        let mut hole = self.find(chunks, address)?;
        let found = self.buckets[hole];
        // An entry that was pushed past the hole moves back, so that a search can stop at a free bucket.
        let mut bucket = self.next(hole);
        while self.buckets[bucket] != ChunkHandle::NONE {
            let preferred = self.bucket_of(chunks[self.buckets[bucket]].address);
            let mask = self.buckets.len() - 1;
            if bucket.wrapping_sub(preferred) & mask >= bucket.wrapping_sub(hole) & mask {
                self.buckets[hole] = self.buckets[bucket];
                hole = bucket;
            }
            bucket = self.next(bucket);
        }
        self.buckets[hole] = ChunkHandle::NONE;
        self.used -= 1;
        Some(found)
    }

    /// Returns `true` if an address is there.
    pub(super) fn contains(&self, chunks: &ChunkTable, address: u64) -> bool {
        self.find(chunks, address).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::chunk_table::ChunkTag;
    use super::*;

    #[test]
    fn agrees_with_a_general_map_over_many_changes() {
        let mut chunks = ChunkTable::new();
        let handles: Vec<ChunkHandle> = (1..3000)
            .map(|number| chunks.push(number * 256, 256, ChunkTag::Lower, ChunkHandle::NONE))
            .collect();
        let mut ours = AddressMap::new();
        let mut general = HashMap::new();
        let mut state = 1u64;
        for _ in 0..200_000 {
            // Marsaglia's xorshift; few enough addresses that most are hit again.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let handle = handles[state as usize % handles.len()];
            let address = chunks[handle].address;
            let known = general.remove(&address);
            assert_eq!(ours.contains(&chunks, address), known.is_some());
            assert_eq!(ours.remove(&chunks, address), known);
            if known.is_none() && state & 0x1000 == 0 {
                ours.insert(&chunks, handle);
                general.insert(address, handle);
            }
        }
        assert_eq!(ours.used, general.len());
        for (address, handle) in general {
            assert_eq!(ours.remove(&chunks, address), Some(handle));
        }
        assert_eq!(ours.remove(&chunks, 0), None);
    }
}
