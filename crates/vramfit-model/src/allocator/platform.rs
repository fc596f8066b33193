//! The pass-through allocators `platform` and `address`: every buffer straight from the driver.
//!
//! Nothing is pooled, so nothing is kept back for later and little is fragmented; a freed buffer is
//! the GPU's again at once. `Device.memory_stats()` returns `None` under them.

use super::Fidelity;
use super::config::PoolOptions;
use super::counted_heap::CountedHeap;
use super::cuda_malloc::CudaMalloc;
use super::kind::AllocatorKind;
use super::live_allocations::LiveAllocations;
use super::regions::SharedDeviceMemory;

const FIDELITY: Fidelity = Fidelity::Model(
    "addresses, and the bytes that the driver takes for buffers of up to 1 MiB, are a model",
);

/// Makes the allocator of one GPU, which hands every request on to the driver.
pub(super) fn build_platform(
    options: &PoolOptions,
    device: SharedDeviceMemory,
) -> CountedHeap<SharedDeviceMemory> {
    // In 0.11 `platform` became a pool of the same shape as the others, with their text;
    // `address` is what `platform` was.
    let is_pool = options.kind == AllocatorKind::Platform && options.jax_version >= (0, 11, 0);
    CountedHeap {
        heap: CudaMalloc::new(device),
        allocations: LiveAllocations::new(
            format!("GPU_{}_{}", options.ordinal, options.kind.name()),
            options.jax_version,
            FIDELITY,
        ),
        limit_bytes: None,
        ordinal_in_text: (!is_pool).then_some(options.ordinal),
    }
}
