//! The pass-through allocators `platform` and `address`: every buffer straight from the driver.
//!
//! Nothing is pooled, so nothing is kept back for later and little is fragmented; a freed buffer is
//! the GPU's again at once. `Device.memory_stats()` returns `None` under them.

use super::config::PoolOptions;
use super::counted_heap::CountedHeap;
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
    heap: CountedHeap<SharedDeviceMemory>,
}

impl Platform {
    pub(super) fn new(options: &PoolOptions, device: SharedDeviceMemory) -> Self {
        Platform {
            options: options.clone(),
            heap: CountedHeap::new(
                device,
                LiveAllocations::new(
                    format!("GPU_{}_{}", options.ordinal, options.kind.name()),
                    options.jax_version,
                    FIDELITY,
                ),
            ),
        }
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.heap.free_all();
    }
}

impl Allocator for Platform {
    fn live_set(&self) -> &dyn LiveSet {
        &self.heap.allocations
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        &mut self.heap.allocations
    }

    fn allocate(
        &mut self,
        bytes: u64,
        alignment: u64,
        _space: PoolSpace,
    ) -> std::result::Result<u64, AllocError> {
        self.heap.allocate(bytes, alignment)
    }

    fn free(&mut self, address: u64) -> Result<()> {
        self.heap.free(address)
    }

    fn stats(&self) -> Stats {
        self.heap.allocations.stats(None)
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
    }
}
