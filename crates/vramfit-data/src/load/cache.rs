//! Decoded blocks of rows, kept until memory is needed for others: the least recently used goes first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vramfit_base::Result;

/// The number of a column, and the number of a block in it.
type Key = (usize, u64);

/// Threads share it. A block is decoded by the first thread that needs it, while others that need it wait.
#[derive(Debug)]
pub(super) struct BlockCache {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    blocks: HashMap<Key, Entry>,
    /// Blocks in the order of their last use.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Empty until it is decoded.
    block: Arc<Mutex<Vec<u8>>>,
    length: usize,
    last_use: u64,
}

impl BlockCache {
    /// Makes a cache of `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        BlockCache { capacity, entries: Mutex::default() }
    }

    /// Whether a block of `length` bytes can be kept.
    pub(super) fn can_hold(&self, length: usize) -> bool {
        length <= self.capacity
    }

    /// Calls `work` with a block of `length` bytes, which `decode` fills if it is not cached.
    ///
    /// # Errors
    ///
    /// Those of `decode`.
    pub(super) fn with_block(
        &self,
        key: Key,
        length: usize,
        decode: impl FnOnce(&mut [u8]) -> Result<()>,
        work: impl FnOnce(&[u8]),
    ) -> Result<()> {
        let block = self.lock().get_or_insert(key, length, self.capacity);
        let mut bytes = block.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.is_empty() {
            let mut decoded = vec![0; length];
            decode(&mut decoded)?;
            *bytes = decoded;
        }
        work(&bytes);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Returns a block; a new one evicts others until it fits.
    fn get_or_insert(&mut self, key: Key, length: usize, capacity: usize) -> Arc<Mutex<Vec<u8>>> {
        self.uses += 1;
        if let Some(entry) = self.blocks.get_mut(&key) {
            self.by_use.remove(&entry.last_use);
            entry.last_use = self.uses;
            self.by_use.insert(self.uses, key);
            return Arc::clone(&entry.block);
        }
        while self.bytes + length > capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            let removed = self.blocks.remove(&oldest);
            self.bytes -= removed.map_or(0, |entry| entry.length);
        }
        let block = Arc::default();
        let entry = Entry { block: Arc::clone(&block), length, last_use: self.uses };
        self.blocks.insert(key, entry);
        self.by_use.insert(self.uses, key);
        self.bytes += length;
        block
    }
}

#[cfg(test)]
mod tests {
    use vramfit_base::Error;

    use super::*;

    /// Reads a block, and returns whether it was decoded for that.
    fn is_decoded(cache: &BlockCache, number: u64, length: usize) -> bool {
        let mut decoded = false;
        let fill = |out: &mut [u8]| {
            decoded = true;
            out.fill(number as u8);
            Ok(())
        };
        let check = |block: &[u8]| assert_eq!(block, vec![number as u8; length]);
        cache.with_block((0, number), length, fill, check).unwrap();
        decoded
    }

    #[test]
    fn the_least_recently_used_block_makes_room() {
        let cache = BlockCache::new(30);
        let wanted = [(1, true), (2, true), (1, false), (3, true), (4, true)];
        for (number, decoded) in wanted {
            assert_eq!(is_decoded(&cache, number, 10), decoded, "{number}");
        }
        // 2 was used before all others.
        let wanted = [(1, false), (3, false), (4, false), (2, true), (1, true)];
        for (number, decoded) in wanted {
            assert_eq!(is_decoded(&cache, number, 10), decoded, "{number} again");
        }
        assert!(cache.lock().bytes <= 30);
        assert!(is_decoded(&cache, 5, 30));
        assert_eq!(cache.lock().blocks.len(), 1);
    }

    #[test]
    fn a_block_that_failed_is_tried_again() {
        let cache = BlockCache::new(30);
        let fail = |_: &mut [u8]| Err(Error::io("it is gone"));
        let never = |_: &[u8]| unreachable!("there is no block");
        assert!(cache.with_block((0, 7), 10, fail, never).is_err());
        assert!(is_decoded(&cache, 7, 10));
        assert!(!is_decoded(&cache, 7, 10));
    }
}
