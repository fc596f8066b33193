//! The pass-through allocators `platform` and `address`: every buffer straight from the driver.
//!
//! Nothing is pooled, so nothing is kept back for later and little is fragmented; a freed buffer is
//! the GPU's again at once. `Device.memory_stats()` returns `None` under them.

use super::config::PoolOptions;
use super::cuda_malloc::CudaMalloc;
use super::kind::AllocatorKind;
use super::live_allocations::LiveAllocations;
use super::live_set::LiveSet;
use super::message::{direct_out_of_memory_text, out_of_memory_text};
use super::regions::SharedDeviceMemory;
use super::{AllocError, Allocator, Fidelity, PoolSpace, State, Stats};
use crate::error::Result;

const FIDELITY: Fidelity = Fidelity::Model(
    "addresses, and the bytes that the driver takes for buffers of up to 1 MiB, are a model",
);

/// Hands every request on to the driver.
#[derive(Debug)]
pub(super) struct Platform {
    options: PoolOptions,
    heap: CudaMalloc<SharedDeviceMemory>,
    allocations: LiveAllocations,
}

impl Platform {
    pub(super) fn new(options: &PoolOptions, device: SharedDeviceMemory) -> Self {
        Platform {
            options: options.clone(),
            heap: CudaMalloc::new(device),
            allocations: LiveAllocations::new(
                format!("GPU_{}_{}", options.ordinal, options.kind.name()),
                options.jax_version,
                FIDELITY,
            ),
        }
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        for (address, cost) in self.allocations.drain() {
            self.heap.free(address, cost);
        }
    }
}

impl Allocator for Platform {
    fn live_set(&self) -> &dyn LiveSet {
        &self.allocations
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        &mut self.allocations
    }

    fn allocate(
        &mut self,
        bytes: u64,
        alignment: u64,
        _space: PoolSpace,
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

    fn free(&mut self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let cost = self.allocations.remove(address)?;
        self.heap.free(address, cost);
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.allocations.stats(None)
    }

    fn reports_stats(&self) -> bool {
        false
    }

    fn out_of_memory_message(&self, bytes: u64) -> String {
        // In 0.11 `platform` became a pool of the same shape as the others, with their text;
        // `address` is what `platform` was.
        if self.options.kind == AllocatorKind::Platform && self.options.jax_version >= (0, 11, 0) {
            out_of_memory_text(bytes, self.options.jax_version)
        } else {
            direct_out_of_memory_text(bytes, self.options.ordinal)
        }
    }

    fn write_state(&self, state: &mut State) {
        self.heap.write_state(state);
        self.allocations.write_state(state);
    }
}
