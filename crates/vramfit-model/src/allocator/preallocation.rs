//! How much of its limit a pool takes that takes its memory at once.
//!
//! XLA's BFC allocator (`Extend` in `bfc_allocator.cc`) rounds what the limit leaves down to whole
//! units of 256 bytes before it asks the driver. The limit itself, which `memory_stats()` reports as
//! `bytes_limit`, is total times fraction cut to a whole byte before JAX 0.10.2, and a multiple of
//! 2 MiB since. So `pool_bytes` of a healthy pool may be up to 255 bytes below `bytes_limit`.

use super::units::UNIT;

/// Returns the bytes that a preallocating pool asks the driver for under a limit.
pub(super) const fn preallocated_bytes(limit_bytes: u64) -> u64 {
    limit_bytes / UNIT * UNIT
}

/// Returns `true` if a preallocating pool obtained all that its limit allows, from the figures
/// `bytes_limit` and `pool_bytes` of `memory_stats()`.
///
/// A pool that did not is one for which the driver refused memory: XLA then asks for a tenth less,
/// and again, until it is granted something, so that such a pool is far below its limit.
pub const fn is_fully_preallocated(limit_bytes: u64, pool_bytes: u64) -> bool {
    pool_bytes >= preallocated_bytes(limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::testing::take;
    use super::super::{PoolOptions, SimulatedDeviceMemory, build};
    use super::*;
    use crate::gpu;

    /// Every release that `make matrix` runs, and the one in between that changed the limit.
    const RELEASES: [(u32, u32, u32); 7] =
        [(0, 6, 2), (0, 8, 1), (0, 9, 2), (0, 10, 1), (0, 10, 2), (0, 11, 2), (0, 12, 0)];
    const GPUS: [&str; 5] = ["t4", "rtx-4090", "a100-40g", "h100-80g", "b200-180g"];

    /// Returns `bytes_limit` and `pool_bytes` after the first request on a GPU with so much free memory.
    fn figures(options: &PoolOptions, free_bytes: u64) -> (u64, u64) {
        let mut allocator = build(options, Box::new(SimulatedDeviceMemory::new(free_bytes)));
        take(&mut *allocator, 4);
        let stats = allocator.stats();
        let limit = stats.bytes_limit.expect("the pool has a limit");
        (limit, stats.pool_bytes.expect("the pool is told"))
    }

    #[test]
    fn a_healthy_pool_is_whole_in_every_release_at_every_fraction() {
        let mut unequal = 0;
        for name in GPUS {
            let gpu = gpu::find(name).expect("in the catalog");
            for jax_version in RELEASES {
                for hundredths in 50u8..=95 {
                    let options = PoolOptions {
                        total_memory_bytes: gpu.total_memory_bytes,
                        memory_fraction: f64::from(f32::from(hundredths) / 100.0),
                        jax_version,
                        ..PoolOptions::default()
                    };
                    let at = format!("{name}, {jax_version:?}, {hundredths} %");
                    let (limit, pool) = figures(&options, gpu.total_memory_bytes);
                    unequal += u32::from(pool < limit);
                    assert!(is_fully_preallocated(limit, pool), "{at}: {pool} of {limit}");
                    let (limit, pool) = figures(&options, limit / 100 * 99);
                    assert!(!is_fully_preallocated(limit, pool), "{at}: {pool} of {limit}");
                }
            }
        }
        assert!(unequal > 0, "no limit was rounded, so nothing was tested");
    }

    #[test]
    fn only_the_rounding_is_forgiven() {
        assert!(is_fully_preallocated(1023, 768));
        assert!(!is_fully_preallocated(1024, 768));
        assert!(!is_fully_preallocated(1024, 1023));
        assert!(is_fully_preallocated(0, 0));
        assert!(is_fully_preallocated(1 << 20, 2 << 20));
    }
}
