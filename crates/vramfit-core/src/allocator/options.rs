//! From the options of a JAX client to the allocator it makes.
//!
//! Limits are computed as XLA does it (`CreateBFCAllocator` and neighbours in
//! `xla/pjrt/gpu/gpu_helpers.cc`). How JAX fills the options from the environment is the business of
//! [`crate::settings`].

use super::bfc::Bfc;
use super::collective::SplitCollectivePool;
use super::cuda_async::CudaAsync;
use super::device_memory::PAGE_BYTES;
use super::kind::Kind;
use super::platform::Platform;
use super::pool::BfcOptions;
use super::regions::{Backpedal, SharedDeviceMemory};
use super::spatial::Spatial;
use super::spatial_policy::SpatialPolicy;
use super::vmm::Vmm;
use super::{Allocator, DeviceMemory};

/// A release of JAX: `(0, 10, 2)`.
pub type JaxVersion = (u32, u32, u32);

/// Everything about a client that decides how one GPU's memory is handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// The allocator asked for.
    pub kind: Kind,
    /// The GPU's number in this process.
    pub ordinal: u32,
    /// The GPU's total memory as the driver reports it.
    pub total_memory_bytes: u64,
    /// The part of the total that the pool may take, as XLA has it. As a number it comes through a
    /// 32-bit option of the PJRT C API and is widened again, so 0.9 is 0.89999998; as a text, which
    /// JAX 0.12 takes too, it keeps 64 bits.
    pub memory_fraction: f64,
    /// Whether the pool takes its whole limit at the first request.
    pub preallocate: bool,
    /// `--xla_gpu_enable_allocator_spatial_partitioning`; versions before 0.11 do not know it.
    pub spatial_partitioning: bool,
    /// `TF_FORCE_UNIFIED_MEMORY`.
    pub unified_memory: bool,
    /// `TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC`; only `CudaAsync` reads it.
    pub cuda_async_prealloc: i64,
    /// `XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB` in bytes.
    pub collective_memory_bytes: Option<u64>,
    /// The release of JAX whose behaviour is wanted.
    pub jax_version: JaxVersion,
}

impl Default for PoolOptions {
    /// What JAX 0.10.2 takes when nothing is set, for a GPU with no memory.
    fn default() -> Self {
        PoolOptions {
            kind: Kind::Bfc,
            ordinal: 0,
            total_memory_bytes: 0,
            memory_fraction: 0.75,
            preallocate: true,
            spatial_partitioning: true,
            unified_memory: false,
            cuda_async_prealloc: 0,
            collective_memory_bytes: None,
            jax_version: (0, 10, 2),
        }
    }
}

impl PoolOptions {
    /// Returns what the default pool may take: total times fraction, cut to a whole number, and for
    /// BFC since JAX 0.10.2 rounded up to 2 MiB.
    pub fn limit_bytes(&self) -> u64 {
        let total = self.total_memory_bytes as f64;
        match self.kind {
            Kind::Bfc if self.unified_memory => {
                self.rounded((total * self.memory_fraction.max(1.0)) as u64)
            }
            Kind::Bfc => self.rounded((total * self.memory_fraction) as u64),
            _ => (total * self.memory_fraction) as u64,
        }
    }

    /// Returns what the separate pool for collective memory may take.
    pub fn collective_limit_bytes(&self) -> u64 {
        self.rounded(match self.collective_memory_bytes {
            Some(bytes) if bytes > 0 => bytes,
            _ => (self.total_memory_bytes as f64 * (1.0 - self.memory_fraction)) as u64,
        })
    }

    /// Returns what every limit of the default pool is a multiple of. Seen in the released plugins:
    /// 0.10.1 uses the product as it is, 0.10.2 rounds it up to a page.
    pub fn limit_step_bytes(&self) -> u64 {
        match self.kind {
            Kind::Bfc if self.jax_version >= (0, 10, 2) => PAGE_BYTES,
            _ => 1,
        }
    }

    fn rounded(&self, limit: u64) -> u64 {
        if self.jax_version < (0, 10, 2) {
            limit
        } else {
            limit.checked_next_multiple_of(PAGE_BYTES).unwrap_or(limit)
        }
    }

    /// Says whether one partitioned pool serves default and collective memory.
    pub fn is_partitioned(&self) -> bool {
        self.kind == Kind::Bfc
            && self.preallocate
            && self.spatial_partitioning
            && self.jax_version >= (0, 11, 0)
    }

    fn spatial_policy(&self) -> SpatialPolicy {
        if self.jax_version < (0, 12, 0) {
            SpatialPolicy::JAX_0_11
        } else {
            SpatialPolicy::JAX_0_12
        }
    }

    fn back_off(&self) -> Backpedal {
        match self.jax_version {
            version if version < (0, 11, 1) => Backpedal::UpForEver,
            version if version < (0, 12, 0) => Backpedal::Up,
            _ => Backpedal::Down,
        }
    }

    fn bfc_options(&self, name: String, limit_bytes: u64, grows: bool) -> BfcOptions {
        BfcOptions {
            name,
            limit_bytes,
            grows,
            back_off: self.back_off(),
            reports_largest_free_block: self.jax_version >= (0, 11, 0),
            jax_version: self.jax_version,
            ..BfcOptions::default()
        }
    }
}

/// Makes the allocator that a client with these options makes for one GPU.
pub fn build(options: &PoolOptions, memory: Box<dyn DeviceMemory>) -> Box<dyn Allocator> {
    let device = SharedDeviceMemory::new(memory);
    let pool = || {
        let name = format!("GPU_{}_bfc", options.ordinal);
        options.bfc_options(name, options.limit_bytes(), !options.preallocate)
    };
    let default: Box<dyn Allocator> = match options.kind {
        Kind::Bfc if options.is_partitioned() => {
            return Box::new(Spatial::on_device(pool(), options.spatial_policy(), device));
        }
        Kind::Bfc => Box::new(Bfc::on_device(pool(), device.clone())),
        Kind::CudaAsync => Box::new(CudaAsync::new(options, device.clone())),
        Kind::Platform | Kind::Address => return Box::new(Platform::new(options, device)),
        Kind::Vmm => return Box::new(Vmm::new(options, device)),
    };
    let preallocated = options
        .collective_memory_bytes
        .is_some_and(|bytes| bytes > 0);
    let collective = Bfc::on_device(
        options.bfc_options(
            format!("GPU_collectivememory_{}_bfc", options.ordinal),
            options.collective_limit_bytes(),
            !preallocated,
        ),
        device,
    );
    Box::new(SplitCollectivePool {
        default,
        collective,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Fidelity, SimulatedDeviceMemory, Space};
    use super::*;
    use crate::error::ErrorKind;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_fraction_is_a_32_bit_float_widened() {
        let options = |memory_fraction: f32| PoolOptions {
            total_memory_bytes: 80 * GIB,
            memory_fraction: f64::from(memory_fraction),
            jax_version: (0, 10, 1),
            ..PoolOptions::default()
        };
        // 0.75 is exact in 32 bits; 0.9 becomes 15,099,494 / 2^24, which is less.
        let nine_tenths = 80 * GIB / (1 << 24) * 15_099_494;
        assert_eq!(options(0.75).limit_bytes(), 60 * GIB);
        assert_eq!(options(0.9).limit_bytes(), nine_tenths);
        assert_eq!(
            options(0.9).collective_limit_bytes(),
            80 * GIB - nine_tenths
        );
        assert_eq!(options(-1.0).limit_bytes(), 0);
        let unified = PoolOptions {
            unified_memory: true,
            ..options(0.75)
        };
        assert_eq!(unified.limit_bytes(), 80 * GIB);
        let twice = PoolOptions {
            memory_fraction: 2.0,
            ..unified
        };
        assert_eq!(twice.limit_bytes(), 160 * GIB);
    }

    #[test]
    fn bfc_limits_are_rounded_up_since_0_10_2() {
        // An H100 with 80 GB.
        let total_memory_bytes = 84_942_979_072;
        let options = |jax_version, kind| PoolOptions {
            kind,
            total_memory_bytes,
            jax_version,
            collective_memory_bytes: None,
            ..PoolOptions::default()
        };
        let product = total_memory_bytes / 4 * 3;
        assert_ne!(product % PAGE_BYTES, 0, "a multiple would show nothing");
        let page_above = (product / PAGE_BYTES + 1) * PAGE_BYTES;
        assert_eq!(options((0, 10, 1), Kind::Bfc).limit_bytes(), product);
        assert_eq!(options((0, 10, 2), Kind::Bfc).limit_bytes(), page_above);
        for kind in [Kind::CudaAsync, Kind::Vmm] {
            assert_eq!(options((0, 10, 2), kind).limit_bytes(), product);
        }
        let given = |jax_version| PoolOptions {
            collective_memory_bytes: Some(PAGE_BYTES + 1),
            ..options(jax_version, Kind::Bfc)
        };
        assert_eq!(given((0, 10, 1)).collective_limit_bytes(), PAGE_BYTES + 1);
        assert_eq!(given((0, 10, 2)).collective_limit_bytes(), 2 * PAGE_BYTES);
    }

    #[test]
    fn the_pool_is_taken_at_the_first_request() {
        let options = PoolOptions {
            total_memory_bytes: 80 * GIB,
            ..PoolOptions::default()
        };
        let mut allocator = build(&options, Box::new(SimulatedDeviceMemory::new(79 * GIB)));
        assert_eq!(allocator.stats().pool_bytes, Some(0));
        allocator
            .allocate(4, 64, Space::Default)
            .expect("an empty device has room");
        assert_eq!(allocator.stats().pool_bytes, Some(60 * GIB));
        assert_eq!(allocator.stats().bytes_in_use, 256);
    }

    #[test]
    fn a_partly_taken_card_gives_a_smaller_pool_without_a_word() {
        let options = PoolOptions {
            total_memory_bytes: 80 * GIB,
            ..PoolOptions::default()
        };
        let mut allocator = build(&options, Box::new(SimulatedDeviceMemory::new(50 * GIB)));
        allocator
            .allocate(4, 64, Space::Default)
            .expect("there is room for this");
        let stats = allocator.stats();
        let pool = stats.pool_bytes.expect("BFC reports its pool");
        assert_eq!(stats.bytes_limit, Some(60 * GIB));
        assert!(pool < 50 * GIB && pool > 45 * GIB, "{pool}");
    }

    #[test]
    fn one_pool_serves_both_spaces_in_0_11() {
        let options = PoolOptions {
            total_memory_bytes: 80 * GIB,
            jax_version: (0, 11, 0),
            ..PoolOptions::default()
        };
        let place = |options: &PoolOptions| {
            let mut allocator = build(options, Box::new(SimulatedDeviceMemory::new(79 * GIB)));
            let default = allocator
                .allocate(1, 64, Space::Default)
                .expect("there is room");
            let collective = allocator
                .allocate(1, 64, Space::Collective)
                .expect("there is room");
            (default, collective, allocator.stats())
        };
        let (default, collective, stats) = place(&options);
        assert!(collective > default + 59 * GIB, "the ends of one pool");
        assert_eq!(collective % (2 << 20), 0);
        assert_eq!(stats.num_allocs, 2);
        assert_eq!(stats.largest_free_block_bytes, 60 * GIB - 256 - (2 << 20));
        for apart in [
            PoolOptions {
                preallocate: false,
                ..options.clone()
            },
            PoolOptions {
                spatial_partitioning: false,
                ..options.clone()
            },
            PoolOptions {
                jax_version: (0, 10, 2),
                ..options.clone()
            },
        ] {
            assert_eq!(place(&apart).2.num_allocs, 1, "{apart:?}");
        }
    }

    #[test]
    fn what_was_not_compared_is_called_a_model() {
        let fidelity = |kind, jax_version| {
            let options = PoolOptions {
                kind,
                jax_version,
                ..PoolOptions::default()
            };
            build(&options, Box::new(SimulatedDeviceMemory::new(GIB))).fidelity()
        };
        for version in [(0, 4, 38), (0, 10, 2), (0, 11, 0), (0, 12, 9)] {
            assert_eq!(fidelity(Kind::Bfc, version), Fidelity::Exact, "{version:?}");
        }
        assert!(matches!(
            fidelity(Kind::Bfc, (0, 13, 0)),
            Fidelity::Model(_)
        ));
        for kind in [Kind::Platform, Kind::Address, Kind::CudaAsync, Kind::Vmm] {
            assert!(
                matches!(fidelity(kind, (0, 10, 2)), Fidelity::Model(_)),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn collective_memory_has_its_own_pool() {
        let options = PoolOptions {
            total_memory_bytes: 80 * GIB,
            ..PoolOptions::default()
        };
        let mut allocator = build(&options, Box::new(SimulatedDeviceMemory::new(79 * GIB)));
        let address = allocator
            .allocate(1 << 20, 64, Space::Collective)
            .expect("an empty device has room");
        assert_eq!(allocator.stats().num_allocs, 0, "JAX does not count it");
        assert_eq!(allocator.stats().pool_bytes, Some(0));
        allocator.free(address).expect("it was allocated");
        let error = allocator.free(address).expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Internal);
        let beyond = options.collective_limit_bytes() + 1;
        assert!(allocator.allocate(beyond, 64, Space::Collective).is_err());
    }
}
