//! An allocator without a pool of its own: each request goes to a heap of the driver and is counted.

use super::cuda_malloc::CudaMalloc;
use super::device_memory::free_page_bytes;
use super::live_allocations::LiveAllocations;
use super::live_set::LiveSet;
use super::message::{direct_out_of_memory_text, out_of_memory_text};
use super::{AllocError, AllocResult, Allocator, DeviceMemory, PoolSpace, Stats};
use crate::error::Result;

/// Hands requests on to the driver, and counts them.
#[derive(Debug)]
pub(super) struct CountedHeap<M: DeviceMemory> {
    pub(super) heap: CudaMalloc<M>,
    pub(super) allocations: LiveAllocations,
    /// The limit in the statistics; `None` where `Device.memory_stats()` returns `None`.
    pub(super) limit_bytes: Option<u64>,
    /// The GPU that the text of a refused request names; `None` where it is the text of a pool.
    pub(super) ordinal_in_text: Option<u32>,
}

impl<M: DeviceMemory> Drop for CountedHeap<M> {
    fn drop(&mut self) {
        for (address, cost) in self.allocations.drain() {
            self.heap.free(address, cost);
        }
    }
}

impl<M: DeviceMemory> Allocator for CountedHeap<M> {
    fn live_set(&self) -> &dyn LiveSet {
        &self.allocations
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        &mut self.allocations
    }

    fn allocate(&mut self, bytes: u64, alignment: u64, _space: PoolSpace) -> AllocResult<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let found = self.heap.allocate(bytes, alignment);
        let (address, cost) = found.ok_or(AllocError::OutOfMemory)?;
        self.allocations.insert(address, bytes, cost);
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<()> {
        if address != 0 {
            let cost = self.allocations.remove(address)?;
            self.heap.free(address, cost);
        }
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.allocations.stats(self.limit_bytes)
    }

    fn obtainable_bytes(&self, gpu_bytes: u64) -> u64 {
        free_page_bytes(gpu_bytes, self.heap.page_bytes())
    }

    fn reports_stats(&self) -> bool {
        self.limit_bytes.is_some()
    }

    fn out_of_memory_message(&self, bytes: u64) -> String {
        match self.ordinal_in_text {
            Some(ordinal) => direct_out_of_memory_text(bytes, ordinal),
            None => out_of_memory_text(bytes, self.allocations.jax_version()),
        }
    }
}
