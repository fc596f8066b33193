//! The best-fit-with-coalescing allocator, JAX's default: the classic model.
//!
//! It agrees with XLA's `bfc_allocator.cc` operation by operation (`fixtures/bfc` holds recordings of
//! the real one). JAX up to 0.10.2 always uses it; JAX 0.11 only for pools that are not
//! preallocated, see [`super::spatial`] for the others. Frees are taken to be safe at once, as in
//! JAX, which orders them by the compute stream.

use super::bfc_options::BfcOptions;
use super::chunk_table::{ChunkHandle, ChunkSlot, ChunkTag};
use super::dump::{FreeChunks, dump};
use super::free_set::{Entry, FreeSet};
use super::live_set::LiveSet;
use super::log_record::LogRecord;
use super::pool::{BfcPool, round_request};
use super::regions::SharedDeviceMemory;
use super::spatial_policy::PoolEnd;
use super::units::UNIT;
use super::{AllocError, AllocResult, Allocator, DeviceMemory, PoolSpace, Stats};
use crate::error::Result;

/// One classic BFC pool.
#[derive(Debug)]
pub struct Bfc {
    pool: BfcPool,
    free: FreeSet,
}

/// A granted request of no bytes: the null pointer, which may be freed and is counted nowhere.
const NULL: u64 = 0;

impl Bfc {
    /// Creates a pool that takes nothing from the GPU before the first request.
    pub fn new(options: BfcOptions, memory: Box<dyn DeviceMemory>) -> Self {
        Bfc::on_device(options, SharedDeviceMemory::new(memory))
    }

    pub(super) fn on_device(options: BfcOptions, device: SharedDeviceMemory) -> Self {
        Bfc { pool: BfcPool::new(device, options), free: FreeSet::new() }
    }

    /// Returns `true` if this pool has something allocated at the address.
    pub(super) fn contains_address(&self, address: u64) -> bool {
        self.pool.contains_address(address)
    }

    fn entry(&self, handle: ChunkHandle) -> Entry {
        let ChunkSlot { address, size, .. } = self.pool.chunks[handle];
        Entry::new(size, address, handle)
    }

    fn insert(&mut self, handle: ChunkHandle) {
        let entry = self.entry(handle);
        self.free.insert(entry);
    }

    fn remove(&mut self, handle: ChunkHandle) {
        let entry = self.entry(handle);
        let found = self.free.remove(entry);
        debug_assert!(found, "a free chunk is always in the set");
    }

    /// Places a request in the best free chunk, if one fits.
    fn place(&mut self, rounded: u64, requested: u64, alignment: u64) -> Option<u64> {
        let entry = if alignment == UNIT {
            self.free.take_best_fit(rounded)?
        } else {
            let fits = |entry: Entry| entry.size() - rounded >= padding(entry.key(), alignment);
            self.free.take_first_fit(rounded, fits)?
        };
        let mut handle = entry.handle();
        let mut size = entry.size();
        let padding = padding(entry.key(), alignment);
        if padding > 0 {
            // What lies before the aligned address becomes a free chunk of its own.
            let aligned = self.pool.chunks.split(handle, padding);
            self.insert(handle);
            handle = aligned;
            size -= padding;
        }
        if self.pool.should_split(size, rounded) {
            let rest = self.pool.chunks.split(handle, rounded);
            self.insert(rest);
        }
        Some(self.pool.commit(handle, requested))
    }

    /// Takes one more region from the GPU and says whether that worked.
    fn grow(&mut self, rounded: u64, alignment: u64) -> AllocResult<bool> {
        let Some(handle) = self.pool.grow(rounded, alignment, ChunkTag::Lower)? else {
            return Ok(false);
        };
        self.coalesce(handle);
        Ok(true)
    }

    /// Joins a free chunk with free neighbors and enters the result.
    fn coalesce(&mut self, handle: ChunkHandle) {
        let ChunkSlot { next, prev, .. } = self.pool.chunks[handle];
        let mut joined = handle;
        if next != ChunkHandle::NONE && !self.pool.chunks[next].in_use {
            self.remove(next);
            self.pool.chunks.merge_next(handle);
        }
        if prev != ChunkHandle::NONE && !self.pool.chunks[prev].in_use {
            self.remove(prev);
            self.pool.chunks.merge_next(prev);
            joined = prev;
        }
        self.insert(joined);
    }

    /// Gives wholly free regions back to the GPU if that could make room for the request.
    fn deallocate_free_regions(&mut self, rounded: u64) -> bool {
        let chunks = &self.pool.chunks;
        let regions = &self.pool.regions;
        let free: Vec<usize> = (0..regions.list.len())
            .filter(|&index| chunks.walk(regions.list[index].first).all(|(_, slot)| !slot.in_use))
            .collect();
        let free_bytes: u64 = free.iter().map(|&index| regions.list[index].bytes).sum();
        let available =
            regions.limit_bytes.wrapping_sub(regions.pool_bytes).wrapping_add(free_bytes);
        if free_bytes == 0 || rounded > available {
            return false;
        }
        for (gone, index) in free.into_iter().enumerate() {
            let index = index - gone;
            let first = self.pool.regions.list[index].first;
            let chunks: Vec<ChunkHandle> =
                self.pool.chunks.walk(first).map(|(chunk, _)| chunk).collect();
            for chunk in chunks {
                self.remove(chunk);
                self.pool.chunks.discard(chunk);
            }
            self.pool.regions.return_region(index);
        }
        true
    }
}

/// Returns the bytes from an address to the next multiple of the alignment.
pub(super) fn padding(address: u64, alignment: u64) -> u64 {
    address.wrapping_neg() & (alignment - 1)
}

impl Allocator for Bfc {
    fn live_set(&self) -> &dyn LiveSet {
        &self.pool
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        &mut self.pool
    }

    fn allocate(&mut self, bytes: u64, alignment: u64, _space: PoolSpace) -> AllocResult<u64> {
        if bytes == 0 {
            return Ok(NULL);
        }
        let (rounded, alignment) = round_request(bytes, alignment)?;
        if let Some(address) = self.place(rounded, bytes, alignment) {
            return Ok(address);
        }
        // A region may have room for the request and still none at the alignment.
        if self.grow(rounded, alignment)?
            && let Some(address) = self.place(rounded, bytes, alignment)
        {
            return Ok(address);
        }
        if self.pool.options.garbage_collection
            && self.deallocate_free_regions(rounded)
            && self.grow(rounded, alignment)?
            && let Some(address) = self.place(rounded, bytes, alignment)
        {
            return Ok(address);
        }
        Err(AllocError::OutOfMemory)
    }

    fn free(&mut self, address: u64) -> Result<()> {
        if address == NULL {
            return Ok(());
        }
        let handle = self.pool.release(address)?;
        self.coalesce(handle);
        Ok(())
    }

    fn obtainable_bytes(&self, gpu_bytes: u64) -> u64 {
        self.pool.obtainable_bytes(gpu_bytes)
    }

    fn stats(&self) -> Stats {
        self.pool.stats(self.free.largest().unwrap_or(0))
    }

    fn largest_free_block(&self) -> Option<u64> {
        Some(self.free.largest().unwrap_or(0))
    }

    fn out_of_memory_log(&self, bytes: u64, _space: PoolSpace) -> Vec<LogRecord> {
        let free = FreeChunks {
            end: PoolEnd::Lower,
            binned: self.free.iter().map(Entry::handle).collect(),
            gap: None,
        };
        dump(&self.pool, &free, bytes)
    }
}
