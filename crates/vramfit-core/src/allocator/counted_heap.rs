//! A heap of the driver with the live allocations in it: what allocators without a pool of their own are
//! made of.

use super::cuda_malloc::CudaMalloc;
use super::live_allocations::LiveAllocations;
use super::{AllocError, DeviceMemory, State};
use crate::error::Result;

/// Hands requests on to the driver, and counts them.
#[derive(Debug)]
pub(super) struct CountedHeap<M> {
    heap: CudaMalloc<M>,
    pub(super) allocations: LiveAllocations,
}

impl<M: DeviceMemory> CountedHeap<M> {
    pub(super) fn new(memory: M, allocations: LiveAllocations) -> Self {
        CountedHeap {
            heap: CudaMalloc::new(memory),
            allocations,
        }
    }

    /// Allocates; a request of 0 bytes gets the null address, and is not counted.
    pub(super) fn allocate(
        &mut self,
        bytes: u64,
        alignment: u64,
    ) -> std::result::Result<u64, AllocError> {
        if bytes == 0 {
            return Ok(0);
        }
        let (address, cost) = self
            .heap
            .allocate(bytes, alignment)
            .ok_or(AllocError::OutOfMemory)?;
        self.allocations.insert(address, bytes, cost);
        Ok(address)
    }

    /// Frees an allocation.
    ///
    /// # Errors
    /// `internal` when there is none at the address.
    pub(super) fn free(&mut self, address: u64) -> Result<()> {
        if address != 0 {
            let cost = self.allocations.remove(address)?;
            self.heap.free(address, cost);
        }
        Ok(())
    }

    /// Frees all allocations.
    pub(super) fn free_all(&mut self) {
        for (address, cost) in self.allocations.drain() {
            self.heap.free(address, cost);
        }
    }

    pub(super) fn write_state(&self, state: &mut State) {
        use super::live_set::LiveSet;
        self.heap.write_state(state);
        self.allocations.write_state(state);
    }
}
