//! From the address of a chunk in use to its slot.
//!
//! XLA keeps an array with an entry for every 256 bytes of the pool, which costs a thirty-second of the
//! pool in host memory and seconds to clear. This is a small open-addressing table of slots instead.
//! The addresses themselves are in the slots, which are needed next anyway.

use super::chunk_table::{ChunkHandle, ChunkTable};

/// A table from addresses to slots.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// Slots; [`ChunkHandle::NONE`] is a free place. The length is a power of two.
    places: Vec<ChunkHandle>,
    used: usize,
    shift: u32,
}

const INITIAL_CAPACITY: usize = 64;
/// At most one place in four is used: a place is only four bytes, and most searches then end at the
/// first one, which the processor can guess.
const PLACES_FOR_ONE: usize = 4;

impl AddressMap {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        AddressMap::with_capacity(INITIAL_CAPACITY)
    }

    fn with_capacity(places: usize) -> Self {
        AddressMap {
            places: vec![ChunkHandle::NONE; places],
            used: 0,
            shift: 64 - places.trailing_zeros(),
        }
    }

    /// Returns where an address would be if nothing else were there.
    fn home(&self, address: u64) -> usize {
        // Multiplying by 2^64 divided by the golden ratio spreads multiples of 256 evenly over the
        // upper bits.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    fn find(&self, arena: &ChunkTable, address: u64) -> Option<usize> {
        let mut place = self.home(address);
        loop {
            let handle = self.places[place];
            if handle == ChunkHandle::NONE {
                return None;
            }
            if arena[handle].address == address {
                return Some(place);
            }
            place = self.next(place);
        }
    }

    /// Enters a slot whose address is not there yet.
    pub(super) fn insert(&mut self, arena: &ChunkTable, handle: ChunkHandle) {
        debug_assert!(!self.contains(arena, arena[handle].address));
        if self.used * PLACES_FOR_ONE >= self.places.len() {
            let mut larger = AddressMap::with_capacity(self.places.len() * 2);
            for &handle in self
                .places
                .iter()
                .filter(|&&handle| handle != ChunkHandle::NONE)
            {
                larger.insert(arena, handle);
            }
            *self = larger;
        }
        let mut place = self.home(arena[handle].address);
        while self.places[place] != ChunkHandle::NONE {
            place = self.next(place);
        }
        self.places[place] = handle;
        self.used += 1;
    }

    /// Strikes an address out and returns its slot.
    pub(super) fn remove(&mut self, arena: &ChunkTable, address: u64) -> Option<ChunkHandle> {
        let mut hole = self.find(arena, address)?;
        let found = self.places[hole];
        // Whoever was pushed past the hole moves back, so that a search can stop at a free place.
        let mut place = self.next(hole);
        while self.places[place] != ChunkHandle::NONE {
            let home = self.home(arena[self.places[place]].address);
            let mask = self.places.len() - 1;
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                self.places[hole] = self.places[place];
                hole = place;
            }
            place = self.next(place);
        }
        self.places[hole] = ChunkHandle::NONE;
        self.used -= 1;
        Some(found)
    }

    /// Says whether an address is there.
    pub(super) fn contains(&self, arena: &ChunkTable, address: u64) -> bool {
        self.find(arena, address).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::chunk_table::Tag;
    use super::*;

    #[test]
    fn agrees_with_a_general_map_over_many_changes() {
        let mut arena = ChunkTable::new();
        let handles: Vec<ChunkHandle> = (1..3000)
            .map(|number| arena.add(number * 256, 256, Tag::Lower, ChunkHandle::NONE))
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
            let address = arena[handle].address;
            let known = general.remove(&address);
            assert_eq!(ours.contains(&arena, address), known.is_some());
            assert_eq!(ours.remove(&arena, address), known);
            if known.is_none() && state & 0x1000 == 0 {
                ours.insert(&arena, handle);
                general.insert(address, handle);
            }
        }
        assert_eq!(ours.used, general.len());
        for (address, handle) in general {
            assert_eq!(ours.remove(&arena, address), Some(handle));
        }
        assert_eq!(ours.remove(&arena, 0), None);
    }
}
