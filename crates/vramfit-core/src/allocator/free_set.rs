//! The free chunks of a pool, ordered so that a best fit is found in a few steps.
//!
//! XLA keeps 21 bins, each an ordered set by size and then address. The order inside and across
//! its bins is one total order by (size, address), so the bins are only an index; here the index
//! is finer (eight classes for each doubling), which keeps the sorted runs short. What may be
//! given out for a request, and in which order chunks are listed, is the same.

use super::arena::Handle;

/// Eight classes for each doubling.
const FRACTION_BITS: u32 = 3;
/// Classes for every size that fits 64 bits, counted in units of 256 bytes.
const CLASSES: usize = (64 - 8 + 1) << FRACTION_BITS;
/// A run is cut in two when it grows beyond this: 256 entries of 24 bytes are moved in about the
/// time of one cache miss, and equal sizes by the ten thousand stay cheap.
const RUN_CAPACITY: usize = 256;

/// One free chunk as the set knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) size: u64,
    /// Decides among equal sizes: the address, or its complement where high addresses come first.
    pub(super) key: u64,
    pub(super) handle: Handle,
}

/// A class: sorted runs, one after the other. There is nearly always one.
#[derive(Debug, Default)]
struct Class {
    runs: Vec<Vec<Entry>>,
}

/// Free chunks in the order (size, key).
#[derive(Debug)]
pub(super) struct FreeSet {
    classes: Vec<Class>,
    occupied: [u64; CLASSES.div_ceil(64)],
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

impl FreeSet {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        let mut classes = Vec::new();
        classes.resize_with(CLASSES, Class::default);
        FreeSet {
            classes,
            occupied: [0; CLASSES.div_ceil(64)],
        }
    }

    /// Adds a free chunk.
    pub(super) fn insert(&mut self, entry: Entry) {
        let index = class_of(entry.size);
        self.occupied[index / 64] |= 1 << (index % 64);
        let runs = &mut self.classes[index].runs;
        let Some(last) = runs.len().checked_sub(1) else {
            let mut run = Vec::with_capacity(8);
            run.push(entry);
            runs.push(run);
            return;
        };
        let at = if last == 0 {
            0
        } else {
            runs.partition_point(|run| run.last().is_some_and(|end| *end < entry))
                .min(last)
        };
        let run = &mut runs[at];
        let place = run.partition_point(|other| *other < entry);
        run.insert(place, entry);
        if run.len() > RUN_CAPACITY {
            let tail = run.split_off(RUN_CAPACITY / 2);
            runs.insert(at + 1, tail);
        }
    }

    /// Removes a free chunk and says whether it was there.
    pub(super) fn remove(&mut self, size: u64, key: u64) -> bool {
        let index = class_of(size);
        let runs = &mut self.classes[index].runs;
        let key = (size, key);
        let at = if runs.len() == 1 {
            0
        } else {
            runs.partition_point(|run| run.last().is_some_and(|end| (end.size, end.key) < key))
        };
        let Some(run) = runs.get_mut(at) else {
            return false;
        };
        let place = run.partition_point(|other| (other.size, other.key) < key);
        if run
            .get(place)
            .is_none_or(|found| (found.size, found.key) != key)
        {
            return false;
        }
        run.remove(place);
        if run.is_empty() {
            // The last run of a class stays, so that a class that comes and goes does not allocate.
            if runs.len() > 1 {
                runs.remove(at);
            } else {
                self.occupied[index / 64] &= !(1 << (index % 64));
            }
        }
        true
    }

    /// Returns the smallest chunk of at least `size`, the lowest address first among equals.
    pub(super) fn best_fit(&self, size: u64) -> Option<Entry> {
        let index = class_of(size);
        if self.occupied[index / 64] & (1 << (index % 64)) != 0 {
            for run in &self.classes[index].runs {
                let place = run.partition_point(|entry| entry.size < size);
                if let Some(entry) = run.get(place) {
                    return Some(*entry);
                }
            }
        }
        let next = self.next_occupied(index + 1)?;
        self.classes[next].runs.first()?.first().copied()
    }

    /// Returns the chunks of at least `size` in order.
    pub(super) fn at_least(&self, size: u64) -> impl Iterator<Item = Entry> + '_ {
        let first = class_of(size);
        self.classes[first..]
            .iter()
            .flat_map(|class| class.runs.iter().flatten())
            .copied()
            .skip_while(move |entry| entry.size < size)
    }

    /// Returns the largest free chunk's size.
    pub(super) fn largest(&self) -> Option<u64> {
        for (index, word) in self.occupied.iter().enumerate().rev() {
            if *word != 0 {
                let class = index * 64 + 63 - word.leading_zeros() as usize;
                return self.classes[class]
                    .runs
                    .last()?
                    .last()
                    .map(|entry| entry.size);
            }
        }
        None
    }

    fn next_occupied(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = self.occupied.get(index)? & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
            index += 1;
            word = *self.occupied.get(index)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_with_size_and_fit_every_size() {
        let mut before = 0;
        for shift in 0..64 {
            for size in [
                (1u64 << shift) - 1,
                1 << shift,
                (1 << shift) + (1 << shift) / 3,
            ] {
                let class = class_of(size);
                assert!(class >= before || size + 1 == 1 << shift, "{size}");
                assert!(class < CLASSES, "{size}");
                before = class;
            }
        }
        assert!(class_of(u64::MAX) < CLASSES);
    }

    #[test]
    fn equal_sizes_by_the_thousand_stay_in_address_order() {
        let mut set = FreeSet::new();
        // A multiplier coprime to the count visits every key once, in scattered order.
        let key = |i: u64| (i * 7919 % 10_000) * 256;
        for i in 0..10_000 {
            set.insert(Entry {
                size: 4096,
                key: key(i),
                handle: Handle(i as u32),
            });
        }
        for lowest in 0..10_000 {
            let entry = set.best_fit(4000).expect("the set is not empty yet");
            assert_eq!(entry.key, lowest * 256);
            assert!(set.remove(entry.size, entry.key));
        }
        assert!(set.best_fit(1).is_none());
        assert_eq!(set.largest(), None);
    }

    #[test]
    fn the_smallest_that_fits_wins_across_classes() {
        let mut set = FreeSet::new();
        for (size, key) in [(1 << 30, 0), (256, 1 << 40), (5120, 512), (4864, 1024)] {
            set.insert(Entry {
                size,
                key,
                handle: Handle(0),
            });
        }
        assert_eq!(set.best_fit(4800).map(|entry| entry.size), Some(4864));
        assert_eq!(set.best_fit(4865).map(|entry| entry.size), Some(5120));
        assert_eq!(set.best_fit(5121).map(|entry| entry.size), Some(1 << 30));
        assert_eq!(
            set.at_least(300)
                .map(|entry| entry.size)
                .collect::<Vec<_>>(),
            [4864, 5120, 1 << 30]
        );
        assert_eq!(set.largest(), Some(1 << 30));
        assert!(!set.remove(5120, 513));
    }
}
