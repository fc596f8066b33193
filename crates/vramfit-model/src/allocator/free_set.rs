//! The free chunks of a pool, ordered so that a best fit is found in a few steps.
//!
//! XLA keeps 21 bins, each an ordered set by size and then address. The order inside and across
//! its bins is one total order by (size, address), so the bins are only an index; here the index
//! is finer (sixteen classes for each doubling), which keeps each part short. What may be
//! given out for a request, and in which order chunks are listed, is the same.

use std::collections::BTreeSet;

use super::chunk_table::ChunkHandle;

/// Sixteen classes for each doubling.
const FRACTION_BITS: u32 = 4;
/// Classes for every size that fits 64 bits, counted in units of 256 bytes.
const CLASSES: usize = (64 - 8 + 1) << FRACTION_BITS;
const WORDS: usize = CLASSES.div_ceil(64);
/// Beyond this an array costs more than a tree, and equal sizes by the ten thousand stay cheap.
const SHORT_CAPACITY: usize = 512;
/// In arrays up to this length a plain search from the end beats a binary one.
const LINEAR_SEARCH_LIMIT: usize = 12;

/// One free chunk as the set knows it: size, key and slot in one number, so that comparing and
/// passing it costs two registers. From the top: 40 bits of size and 56 bits of key, both in units of
/// 256 bytes, and 32 bits of slot.
///
/// The key decides among equal sizes: the address, or its complement where high addresses come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u128);

impl Entry {
    /// The largest size of a chunk: 256 TiB less one unit.
    pub(super) const MAX_SIZE: u64 = super::MAX_REGION_BYTES;

    /// Describes a free chunk. Sizes and keys are cut to multiples of 256.
    pub(super) fn new(size: u64, key: u64, handle: ChunkHandle) -> Self {
        debug_assert!(size <= Entry::MAX_SIZE);
        Entry(u128::from(size >> 8) << 88 | u128::from(key >> 8) << 32 | u128::from(handle.0))
    }

    /// Returns the smallest entry of at least a size. It compares as less than any real one.
    fn at_least(size: u64) -> Self {
        // A request for more than the maximum looks into a class that is always empty.
        Entry::new(size.min(Entry::MAX_SIZE), 0, ChunkHandle(0))
    }

    pub(super) fn size(self) -> u64 {
        ((self.0 >> 88) as u64) << 8
    }

    pub(super) fn key(self) -> u64 {
        ((self.0 >> 32) as u64) << 8
    }

    pub(super) fn handle(self) -> ChunkHandle {
        ChunkHandle(self.0 as u32)
    }
}

/// A class: an array in falling order while it is short, which it nearly always is, else a tree.
///
/// Falling, because the smallest that fits is then near the end, where taking it out moves little.
#[derive(Clone, Debug, Default)]
struct Class {
    short: Vec<Entry>,
    /// Not empty only while `short` is.
    long: BTreeSet<Entry>,
}

/// Free chunks in the order (size, key).
#[derive(Debug)]
pub(super) struct FreeSet {
    classes: Vec<Class>,
    occupied: [u64; WORDS],
}

/// Returns the class of a size; a larger size never has a smaller class.
fn class_of(size: u64) -> usize {
    let units = size >> 8;
    if units < (1 << FRACTION_BITS) {
        return units as usize;
    }
    let exponent = 63 - units.leading_zeros();
    let fraction = (units >> (exponent - FRACTION_BITS)) & ((1 << FRACTION_BITS) - 1);
    (((exponent - FRACTION_BITS + 1) << FRACTION_BITS) as u64 + fraction) as usize
}

impl Class {
    fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Returns how many entries of the array are not less than the given one.
    fn count_from(&self, entry: Entry) -> usize {
        if self.short.len() > LINEAR_SEARCH_LIMIT {
            return self.short.partition_point(|other| *other >= entry);
        }
        let mut place = self.short.len();
        while place > 0 && self.short[place - 1] < entry {
            place -= 1;
        }
        place
    }

    fn insert(&mut self, entry: Entry) {
        if !self.long.is_empty() {
            self.long.insert(entry);
        } else if self.short.len() < LINEAR_SEARCH_LIMIT {
            // Entry by entry: moving a few as one block right after one of them was written stalls
            // the processor for longer than this takes.
            let mut place = self.short.len();
            self.short.push(entry);
            while place > 0 && self.short[place - 1] < entry {
                self.short[place] = self.short[place - 1];
                place -= 1;
            }
            self.short[place] = entry;
        } else if self.short.len() < SHORT_CAPACITY {
            self.short.insert(self.count_from(entry), entry);
        } else {
            self.long.extend(self.short.drain(..));
            self.long.insert(entry);
        }
    }

    fn remove(&mut self, entry: Entry) -> bool {
        if !self.long.is_empty() {
            let found = self.long.remove(&entry);
            self.shorten();
            return found;
        }
        let count = self.count_from(entry);
        let found = count > 0 && self.short[count - 1] == entry;
        if found {
            self.take(count - 1);
        }
        found
    }

    /// Takes the smallest entry that is not less than the given one and fits.
    fn take_from(&mut self, entry: Entry, fits: impl Fn(Entry) -> bool) -> Option<Entry> {
        if self.long.is_empty() {
            let count = self.count_from(entry);
            let place = self.short[..count].iter().rposition(|&other| fits(other))?;
            return Some(self.take(place));
        }
        let found = self.long.range(entry..).copied().find(|&other| fits(other))?;
        self.long.remove(&found);
        self.shorten();
        Some(found)
    }

    fn take(&mut self, place: usize) -> Entry {
        let last = if place + 1 == self.short.len() { self.short.pop() } else { None };
        last.unwrap_or_else(|| self.short.remove(place))
    }

    /// Goes back to the array when the tree has become much shorter than what made it.
    fn shorten(&mut self) {
        if self.long.len() < SHORT_CAPACITY / 4 {
            self.short.extend(std::mem::take(&mut self.long).into_iter().rev());
        }
    }

    /// Returns the entries in rising order.
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.short.iter().rev().chain(&self.long)
    }

    fn largest(&self) -> Option<u64> {
        self.short.first().or_else(|| self.long.last()).map(|entry| entry.size())
    }
}

impl FreeSet {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        FreeSet { classes: vec![Class::default(); CLASSES], occupied: [0; WORDS] }
    }

    /// Adds a free chunk.
    pub(super) fn insert(&mut self, entry: Entry) {
        let index = class_of(entry.size());
        let class = &mut self.classes[index];
        if class.is_empty() {
            self.occupied[index / 64] |= 1 << (index % 64);
        }
        class.insert(entry);
    }

    /// Removes a free chunk and says whether it was there.
    pub(super) fn remove(&mut self, entry: Entry) -> bool {
        let index = class_of(entry.size());
        let found = self.classes[index].remove(entry);
        self.clear_if_empty(index);
        found
    }

    /// Takes the smallest chunk of at least `size`, the lowest address first among equals.
    pub(super) fn take_best_fit(&mut self, size: u64) -> Option<Entry> {
        self.take_first_fit(size, |_| true)
    }

    /// Takes the first chunk of at least `size`, in the order of the set, that fits.
    pub(super) fn take_first_fit(
        &mut self,
        size: u64,
        fits: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let least = Entry::at_least(size);
        let mut from = class_of(size);
        loop {
            let index = self.next_occupied(from)?;
            if let Some(entry) = self.classes[index].take_from(least, &fits) {
                self.clear_if_empty(index);
                return Some(entry);
            }
            from = index + 1;
        }
    }

    /// Returns all chunks in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        let mut next = self.next_occupied(0);
        let classes = std::iter::from_fn(move || {
            let index = next?;
            next = self.next_occupied(index + 1);
            Some(&self.classes[index])
        });
        classes.flat_map(Class::iter).copied()
    }

    /// Returns the largest free chunk's size.
    pub(super) fn largest(&self) -> Option<u64> {
        let word = (0..WORDS).rev().find(|&word| self.occupied[word] != 0)?;
        let index = word * 64 + 63 - self.occupied[word].leading_zeros() as usize;
        self.classes[index].largest()
    }

    fn clear_if_empty(&mut self, index: usize) {
        if self.classes[index].is_empty() {
            self.occupied[index / 64] &= !(1 << (index % 64));
        }
    }

    fn next_occupied(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = self.occupied.get(index)? & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            word = *self.occupied.get(index)?;
        }
        Some(index * 64 + word.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_with_size_and_fit_every_size() {
        let mut before = 0;
        for shift in 0..64 {
            for size in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + (1 << shift) / 3] {
                let class = class_of(size);
                assert!(class >= before || size + 1 == 1 << shift, "{size}");
                assert!(class < CLASSES, "{size}");
                before = class;
            }
        }
        assert!(class_of(u64::MAX) < CLASSES);
    }

    #[test]
    fn an_entry_gives_back_what_was_put_in() {
        let entry = Entry::new((1 << 48) - 256, !0x300, ChunkHandle(u32::MAX));
        assert_eq!(entry.size(), (1 << 48) - 256);
        assert_eq!(entry.key(), !0x300 & !0xff);
        assert_eq!(entry.handle(), ChunkHandle(u32::MAX));
    }

    #[test]
    fn equal_sizes_by_the_thousand_stay_in_address_order() {
        let mut set = FreeSet::new();
        // A multiplier coprime to the count visits every key once, in scattered order.
        let key = |i: u64| (i * 7919 % 10_000) * 256;
        for i in 0..10_000 {
            set.insert(Entry::new(4096, key(i), ChunkHandle(i as u32)));
        }
        for i in 0..5_000 {
            let entry = Entry::new(4096, key(i), ChunkHandle(i as u32));
            assert!(set.remove(entry), "{i}");
            assert!(!set.remove(entry), "{i} is gone");
        }
        let mut left: Vec<u64> = (5_000..10_000).map(key).collect();
        left.sort_unstable();
        assert!(set.iter().map(|entry| entry.key()).eq(left.iter().copied()));
        for key in left {
            assert_eq!(set.take_best_fit(4000).map(|entry| entry.key()), Some(key));
        }
        assert_eq!(set.take_best_fit(1), None);
        assert_eq!(set.largest(), None);
    }

    #[test]
    fn the_smallest_that_fits_wins_across_classes() {
        let mut set = FreeSet::new();
        for (size, key) in [(1 << 30, 0), (256, 1 << 40), (5120, 512), (4864, 1024)] {
            set.insert(Entry::new(size, key, ChunkHandle(0)));
        }
        let sizes: Vec<u64> = set.iter().map(|entry| entry.size()).collect();
        assert_eq!(sizes, [256, 4864, 5120, 1 << 30]);
        assert_eq!(set.largest(), Some(1 << 30));
        assert!(!set.remove(Entry::new(5120, 256, ChunkHandle(0))));
        assert_eq!(set.take_best_fit(5120).map(|entry| entry.size()), Some(5120));
        assert_eq!(set.take_best_fit(4608).map(|entry| entry.size()), Some(4864));
        assert_eq!(set.take_best_fit(5376).map(|entry| entry.size()), Some(1 << 30));
        assert_eq!(set.take_best_fit(512), None);
    }
}
