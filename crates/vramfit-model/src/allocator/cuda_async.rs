//! The stream-ordered pool of the CUDA driver, as JAX uses it with `cuda_async`.
//!
//! What XLA does around it (limit, preallocation, statistics) follows
//! `gpu_cudamallocasync_allocator.cc`; what the driver does inside is not documented, so placement is a
//! model: pages of 2 MiB that the driver can map anywhere, so that large buffers never fail for
//! fragmentation.

use super::config::PoolOptions;
use super::counted_heap::CountedHeap;
use super::cuda_malloc::CudaMalloc;
use super::device_memory::{SimulatedDeviceMemory, whole_pages};
use super::live_allocations::LiveAllocations;
use super::regions::SharedDeviceMemory;
use super::{DeviceMemory, Fidelity, Region};

const FIDELITY: Fidelity = Fidelity::Model(
    "limit, preallocation and statistics follow XLA; where the CUDA driver places buffers, \
     and what it keeps, is a model",
);

/// Makes the pool of one GPU.
pub(super) fn build_cuda_async(
    options: &PoolOptions,
    device: SharedDeviceMemory,
) -> CountedHeap<PagePool> {
    // The threshold, and with it the limit that is reported, is 0 without preallocation.
    let threshold = if options.preallocate { options.limit_bytes() } else { 0 };
    let mut pool = PagePool::new(device, threshold);
    let prealloc = if options.cuda_async_prealloc == -1 || options.preallocate {
        threshold
    } else {
        u64::try_from(options.cuda_async_prealloc).unwrap_or(0)
    };
    // One allocation, freed at once. A refusal is logged and otherwise ignored.
    if let Some(region) = pool.allocate(1, prealloc) {
        pool.free(region);
    }
    CountedHeap {
        heap: CudaMalloc::new(pool),
        allocations: LiveAllocations::new(
            format!("gpu_async_{}", options.ordinal),
            options.jax_version,
            FIDELITY,
        ),
        limit_bytes: Some(threshold),
        ordinal_in_text: None,
    }
}

/// Pages reserved from the GPU, mapped wherever they are needed.
#[derive(Debug)]
pub(super) struct PagePool {
    device: SharedDeviceMemory,
    addresses: SimulatedDeviceMemory,
    /// What was reserved from the GPU; the pages in it are interchangeable.
    reserved: Vec<Region>,
    reserved_bytes: u64,
    used_bytes: u64,
    /// What stays in the pool when it is free.
    threshold: u64,
}

impl PagePool {
    fn new(device: SharedDeviceMemory, threshold: u64) -> Self {
        PagePool {
            device,
            addresses: SimulatedDeviceMemory::address_space(),
            reserved: Vec::new(),
            reserved_bytes: 0,
            used_bytes: 0,
            threshold,
        }
    }

    /// Gives free memory above the threshold back. The driver does so when a stream is waited for,
    /// which JAX does all the time; the model does it at once.
    fn trim(&mut self) {
        let mut index = self.reserved.len();
        while index > 0 && self.reserved_bytes > self.threshold {
            index -= 1;
            let cost = whole_pages(self.reserved[index].bytes).unwrap_or(u64::MAX);
            if self.reserved_bytes - self.used_bytes >= cost
                && self.reserved_bytes - cost >= self.threshold
            {
                self.device.free(self.reserved.swap_remove(index));
                self.reserved_bytes -= cost;
            }
        }
    }
}

impl DeviceMemory for PagePool {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let cost = whole_pages(bytes)?;
        let spare = self.reserved_bytes - self.used_bytes;
        if let Some(short) = cost.checked_sub(spare).filter(|&short| short > 0) {
            self.reserved.push(self.device.allocate(1, short)?);
            self.reserved_bytes += short;
        }
        let region = self.addresses.allocate(alignment, bytes)?;
        self.used_bytes += cost;
        Some(region)
    }

    fn free(&mut self, region: Region) {
        self.used_bytes -= whole_pages(region.bytes).unwrap_or(0);
        self.addresses.free(region);
        self.trim();
    }

    fn free_bytes(&self) -> u64 {
        self.reserved_bytes - self.used_bytes + self.device.free_bytes()
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        for region in self.reserved.drain(..) {
            self.device.free(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::device_memory::PAGE_BYTES;
    use super::super::testing::take;
    use super::super::{Allocator, PoolSpace};
    use super::*;

    const GIB: u64 = 1 << 30;

    fn pool(
        preallocate: bool,
        variable: i64,
        free_bytes: u64,
    ) -> (CountedHeap<PagePool>, SharedDeviceMemory) {
        let options = PoolOptions {
            total_memory_bytes: 80 * GIB,
            preallocate,
            cuda_async_prealloc: variable,
            ..PoolOptions::default()
        };
        let device = SharedDeviceMemory::new(Box::new(SimulatedDeviceMemory::new(free_bytes)));
        (build_cuda_async(&options, device.clone()), device)
    }

    #[test]
    fn preallocation_takes_the_limit_at_creation_and_counts_as_nothing() {
        // With preallocation a positive number in the variable is ignored.
        for variable in [0, -1, 5] {
            let (pool, device) = pool(true, variable, 79 * GIB);
            assert_eq!(device.free_bytes(), 19 * GIB);
            let stats = pool.stats();
            assert_eq!(stats.bytes_limit, Some(60 * GIB));
            assert_eq!((stats.num_allocs, stats.peak_bytes_in_use), (0, 0));
            assert_eq!(stats.pool_bytes, None);
        }
    }

    #[test]
    fn without_preallocation_nothing_is_kept_and_the_limit_is_0() {
        for variable in [0, -1, 1 << 30] {
            let (mut pool, device) = pool(false, variable, 79 * GIB);
            assert_eq!(device.free_bytes(), 79 * GIB);
            assert_eq!(pool.stats().bytes_limit, Some(0));
            let address = take(&mut pool, 3 * GIB);
            assert_eq!(device.free_bytes(), 76 * GIB);
            pool.free(address).expect("it was allocated");
            assert_eq!(device.free_bytes(), 79 * GIB);
        }
    }

    #[test]
    fn the_threshold_is_not_a_cap() {
        let (mut pool, device) = pool(true, 0, 79 * GIB);
        let address = take(&mut pool, 70 * GIB);
        assert_eq!(device.free_bytes(), 9 * GIB);
        let refused = pool.allocate(10 * GIB, 64, PoolSpace::Default);
        assert_eq!(refused, Err(super::super::AllocError::OutOfMemory));
        pool.free(address).expect("it was allocated");
        let free_bytes = device.free_bytes();
        assert_eq!(free_bytes, 19 * GIB, "what is above the threshold returns");
    }

    #[test]
    fn a_gpu_without_room_for_the_preallocation_leaves_the_pool_empty() {
        let (mut pool, device) = pool(true, 0, 50 * GIB);
        assert_eq!(device.free_bytes(), 50 * GIB);
        // It grows as needed.
        take(&mut pool, 40 * GIB);
    }

    #[test]
    fn requested_bytes_are_counted_and_small_buffers_share_pages() {
        let (mut pool, device) = pool(false, 0, 79 * GIB);
        for _ in 0..10 {
            take(&mut pool, 1000);
        }
        assert_eq!(pool.stats().bytes_in_use, 10_000);
        assert_eq!(device.free_bytes(), 79 * GIB - PAGE_BYTES);
    }

    #[test]
    fn holes_never_keep_a_large_buffer_out() {
        let (mut pool, _gpu) = pool(false, 0, 8 * GIB);
        let pieces = [(); 8].map(|()| take(&mut pool, GIB));
        for address in pieces.iter().step_by(2) {
            pool.free(*address).expect("it was allocated");
        }
        // 4 GiB are free, if not in a row.
        take(&mut pool, 4 * GIB);
    }
}
