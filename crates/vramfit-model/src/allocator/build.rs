//! From the options of a JAX client to the allocator that it makes, as `xla/pjrt/gpu/gpu_helpers.cc` does it.

use super::bfc::Bfc;
use super::bfc_options::{Backpedal, BfcOptions};
use super::collective::SplitCollectivePool;
use super::config::PoolOptions;
use super::cuda_async::build_cuda_async;
use super::kind::AllocatorKind;
use super::platform::build_platform;
use super::regions::SharedDeviceMemory;
use super::spatial::Spatial;
use super::spatial_policy::SpatialPolicy;
use super::vmm::Vmm;
use super::{Allocator, DeviceMemory};

/// Makes the allocator that a client with these options makes for one GPU.
pub fn build(options: &PoolOptions, memory: Box<dyn DeviceMemory>) -> Box<dyn Allocator> {
    let device = SharedDeviceMemory::new(memory);
    let name = format!("GPU_{}_bfc", options.ordinal);
    let pool = BfcOptions {
        start_bytes: options.start_bytes(),
        ..bfc_options(options, name, options.limit_bytes(), !options.preallocate)
    };
    let default: Box<dyn Allocator> = match options.kind {
        AllocatorKind::Bfc if options.is_partitioned() => {
            return Box::new(Spatial::on_device(pool, spatial_policy(options), device));
        }
        AllocatorKind::Bfc => Box::new(Bfc::on_device(pool, device.clone())),
        AllocatorKind::CudaAsync => Box::new(build_cuda_async(options, device.clone())),
        AllocatorKind::Platform | AllocatorKind::Address => {
            return Box::new(build_platform(options, device));
        }
        AllocatorKind::Vmm => return Box::new(Vmm::new(options, device)),
    };
    let name = format!("GPU_collectivememory_{}_bfc", options.ordinal);
    let is_preallocated = options.collective_memory_bytes > Some(0);
    let limit_bytes = options.collective_limit_bytes();
    let pool = bfc_options(options, name, limit_bytes, !is_preallocated);
    Box::new(SplitCollectivePool { default, collective: Bfc::on_device(pool, device) })
}

fn bfc_options(options: &PoolOptions, name: String, limit_bytes: u64, grows: bool) -> BfcOptions {
    let version = options.jax_version;
    BfcOptions {
        name,
        limit_bytes,
        grows,
        backpedal: match version {
            _ if version < (0, 11, 1) => Backpedal::UpForEver,
            _ if version < (0, 12, 0) => Backpedal::Up,
            _ => Backpedal::Down,
        },
        reports_largest_free_block: version >= (0, 11, 0),
        jax_version: version,
        ..BfcOptions::default()
    }
}

fn spatial_policy(options: &PoolOptions) -> SpatialPolicy {
    if options.jax_version < (0, 12, 0) { SpatialPolicy::JAX_0_11 } else { SpatialPolicy::JAX_0_12 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::take;
    use super::super::{Fidelity, PoolSpace, SimulatedDeviceMemory};
    use super::*;
    use crate::error::ErrorKind;

    const GIB: u64 = 1 << 30;

    /// A client of a GPU of 80 GiB.
    fn client() -> PoolOptions {
        PoolOptions { total_memory_bytes: 80 * GIB, ..PoolOptions::default() }
    }

    fn on_gpu(options: &PoolOptions, free_bytes: u64) -> Box<dyn Allocator> {
        build(options, Box::new(SimulatedDeviceMemory::new(free_bytes)))
    }

    #[test]
    fn the_pool_is_taken_at_the_first_request() {
        let mut allocator = on_gpu(&client(), 79 * GIB);
        assert_eq!(allocator.stats().pool_bytes, Some(0));
        take(&mut *allocator, 4);
        assert_eq!(allocator.stats().pool_bytes, Some(60 * GIB));
        assert_eq!(allocator.stats().bytes_in_use, 256);
    }

    #[test]
    fn a_partly_taken_gpu_gives_a_smaller_pool_without_a_word() {
        let mut allocator = on_gpu(&client(), 50 * GIB);
        take(&mut *allocator, 4);
        let stats = allocator.stats();
        let pool = stats.pool_bytes.expect("BFC reports its pool");
        assert_eq!(stats.bytes_limit, Some(60 * GIB));
        assert!(pool < 50 * GIB && pool > 45 * GIB, "{pool}");
    }

    #[test]
    fn one_pool_serves_both_spaces_in_0_11() {
        let options = PoolOptions { jax_version: (0, 11, 0), ..client() };
        let place = |options: &PoolOptions| {
            let mut allocator = on_gpu(options, 79 * GIB);
            let default = take(&mut *allocator, 1);
            let collective =
                allocator.allocate(1, 64, PoolSpace::Collective).expect("there is room");
            (default, collective, allocator.stats())
        };
        let (default, collective, stats) = place(&options);
        assert!(collective > default + 59 * GIB, "the ends of one pool");
        assert_eq!(collective % (2 << 20), 0);
        assert_eq!(stats.num_allocs, 2);
        assert_eq!(stats.largest_free_block_bytes, 60 * GIB - 256 - (2 << 20));
        let changes: [fn(&mut PoolOptions); 3] = [
            |client| client.preallocate = false,
            |client| client.spatial_partitioning = false,
            |client| client.jax_version = (0, 10, 2),
        ];
        for change in changes {
            let mut apart = options.clone();
            change(&mut apart);
            assert_eq!(place(&apart).2.num_allocs, 1, "{apart:?}");
        }
    }

    #[test]
    fn a_cap_lets_the_pool_grow_where_the_release_does_that() {
        let pool_after = |jax_version, memory_cap, requests: &[u64]| {
            let options = PoolOptions { memory_cap, jax_version, ..client() };
            let mut pool = on_gpu(&options, 79 * GIB);
            let failed = requests
                .iter()
                .position(|&gib| pool.allocate(gib * GIB, 64, PoolSpace::Default).is_err());
            (failed, pool.stats().pool_bytes, pool.stats().bytes_limit)
        };
        let requests = [50, 9, 4];
        // JAX 0.12.0 reads the cap and does nothing with it.
        assert_eq!(
            pool_after((0, 12, 0), Some(1.0), &requests),
            (Some(2), Some(60 * GIB), Some(60 * GIB))
        );
        // 50 and 9 GiB are taken from the upper end of the first 60; the 4 GiB need 4 more, because the last GiB is at the
        // lower end.
        assert_eq!(
            pool_after((0, 13, 0), Some(1.0), &requests),
            (None, Some(64 * GIB), Some(80 * GIB))
        );
        // 78 % are 62.4 GiB, or 31,948.8 pages.
        assert_eq!(
            pool_after((0, 13, 0), Some(0.78), &requests),
            (Some(2), Some(60 * GIB), Some(31_948 * (2 << 20)))
        );
        // Of the 19 GiB that are free beyond the pool 20 are asked for, and then 18: a tenth less.
        assert_eq!(
            pool_after((0, 13, 0), Some(1.0), &[60, 19]),
            (Some(1), Some(60 * GIB), Some(80 * GIB))
        );
        assert_eq!(
            pool_after((0, 13, 0), Some(1.0), &[60, 17, 1]),
            (None, Some(78 * GIB), Some(80 * GIB))
        );
    }

    #[test]
    fn what_was_not_compared_is_called_a_model() {
        let fidelity = |kind, jax_version| {
            let options = PoolOptions { kind, jax_version, ..PoolOptions::default() };
            on_gpu(&options, GIB).fidelity()
        };
        for version in [(0, 4, 38), (0, 10, 2), (0, 11, 0), (0, 12, 9)] {
            assert_eq!(fidelity(AllocatorKind::Bfc, version), Fidelity::Exact, "{version:?}");
        }
        assert!(matches!(fidelity(AllocatorKind::Bfc, (0, 13, 0)), Fidelity::Model(_)));
        let growing = PoolOptions {
            memory_cap: Some(1.0),
            jax_version: (0, 12, 1),
            ..PoolOptions::default()
        };
        assert!(matches!(on_gpu(&growing, GIB).fidelity(), Fidelity::Model(_)));
        for kind in [
            AllocatorKind::Platform,
            AllocatorKind::Address,
            AllocatorKind::CudaAsync,
            AllocatorKind::Vmm,
        ] {
            assert!(matches!(fidelity(kind, (0, 10, 2)), Fidelity::Model(_)), "{kind:?}");
        }
    }

    #[test]
    fn cleared_statistics_begin_with_what_is_in_use() {
        for kind in [AllocatorKind::Bfc, AllocatorKind::CudaAsync] {
            let mut allocator = on_gpu(&PoolOptions { kind, ..client() }, 79 * GIB);
            take(&mut *allocator, 1 << 20);
            let large = take(&mut *allocator, GIB);
            allocator.free(large).expect("it was allocated");
            let before = allocator.stats();
            assert_eq!(before.peak_bytes_in_use, GIB + (1 << 20));
            allocator.clear_stats();
            let after = super::super::Stats {
                num_allocs: 0,
                peak_bytes_in_use: 1 << 20,
                largest_alloc_size: 0,
                ..before
            };
            assert_eq!(allocator.stats(), after, "{kind:?}");
        }
    }

    #[test]
    fn collective_memory_has_its_own_pool() {
        let options = client();
        let mut allocator = on_gpu(&options, 79 * GIB);
        let mut take = |bytes| allocator.allocate(bytes, 64, PoolSpace::Collective);
        let address = take(1 << 20).expect("an empty device has room");
        assert_eq!(allocator.stats().num_allocs, 0, "JAX does not count it");
        assert_eq!(allocator.stats().pool_bytes, Some(0));
        allocator.free(address).expect("it was allocated");
        let error = allocator.free(address).expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Internal);
        let beyond = options.collective_limit_bytes() + 1;
        assert!(allocator.allocate(beyond, 64, PoolSpace::Collective).is_err());
    }
}
