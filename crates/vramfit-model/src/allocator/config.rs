//! The options of a JAX client that decide how memory is handed out, and the limits that follow from them.
//!
//! Limits are computed as XLA does it (`CreateBFCAllocator` and neighbors in
//! `xla/pjrt/gpu/gpu_helpers.cc`). How JAX fills the options from the environment is in [`crate::settings`].

use super::device_memory::PAGE_BYTES;
use super::kind::AllocatorKind;

/// The fraction of a GPU's total memory that JAX's pool may use by default.
pub const DEFAULT_FRACTION: f64 = 0.75;

/// A release of JAX: `(0, 10, 2)`.
pub type JaxVersion = (u32, u32, u32);

/// Everything about a client that decides how one GPU's memory is handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// The allocator asked for.
    pub kind: AllocatorKind,
    /// The GPU's number in this process.
    pub ordinal: u32,
    /// The GPU's total memory as the driver reports it.
    pub total_memory_bytes: u64,
    /// The part of the total that the pool may take, as XLA has it. As a number it comes through a
    /// 32-bit option of the PJRT C API and is widened again, so 0.9 is 0.89999998; as a text, which
    /// JAX 0.12 takes too, it keeps 64 bits.
    pub memory_fraction: f64,
    /// The part of the total to which the pool may grow, where a text such as `0.75-0.85` names one; see
    /// [`PoolOptions::start_bytes`].
    pub memory_cap: Option<f64>,
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
    /// The release of JAX whose behavior is wanted.
    pub jax_version: JaxVersion,
}

impl Default for PoolOptions {
    /// What JAX 0.10.2 takes when nothing is set, for a GPU with no memory.
    fn default() -> Self {
        PoolOptions {
            kind: AllocatorKind::Bfc,
            ordinal: 0,
            total_memory_bytes: 0,
            memory_fraction: DEFAULT_FRACTION,
            memory_cap: None,
            preallocate: true,
            spatial_partitioning: true,
            unified_memory: false,
            cuda_async_prealloc: 0,
            collective_memory_bytes: None,
            jax_version: (0, 10, 2),
        }
    }
}

/// The first release whose pool can grow past its fraction.
///
/// JAX 0.12.0 and 0.12.0.1 read `memory_fraction_policy`, but their `CreateBFCAllocator` passes on the start alone, and
/// so never reserves addresses for more: the pool is fixed there. XLA's main branch does both (openxla/xla#48985). Which
/// release will be the first is not known; a later one than those compared is taken to be.
pub const POOL_GROWS_SINCE: JaxVersion = (0, 12, 1);

/// More host memory than any machine has that a GPU is in.
const MAX_HOST_BYTES: u64 = 1 << 44;

impl PoolOptions {
    /// Returns what the driver can give to pools on a GPU of which `free_bytes` are free. Managed memory that the GPU has
    /// no room for lies in host memory, of which nobody says here how much there is.
    pub fn allocatable_bytes(&self, free_bytes: u64) -> u64 {
        match self.unified_memory && self.kind == AllocatorKind::Bfc {
            true => free_bytes.saturating_add(MAX_HOST_BYTES),
            false => free_bytes,
        }
    }

    /// Returns what the default pool may take: total times fraction, cut to a whole number, and for
    /// BFC since JAX 0.10.2 rounded up to 2 MiB.
    ///
    /// A pool that grows past its fraction may take total times cap, rounded down to 2 MiB.
    pub fn limit_bytes(&self) -> u64 {
        match self.memory_cap {
            Some(cap) if self.grows_past_fraction() => {
                let cap_bytes = (self.total_memory_bytes as f64 * cap) as u64;
                // XLA refuses a start that rounding takes past the cap.
                (cap_bytes / PAGE_BYTES * PAGE_BYTES).max(self.fraction_bytes())
            }
            _ => self.fraction_bytes(),
        }
    }

    /// Returns what a pool that grows past its fraction takes at the first request.
    pub fn start_bytes(&self) -> Option<u64> {
        self.grows_past_fraction().then(|| self.fraction_bytes())
    }

    /// Returns `true` if the pool may grow past its fraction. In all other pools the cap has no effect.
    fn grows_past_fraction(&self) -> bool {
        self.is_partitioned()
            && !self.unified_memory
            && self.memory_cap > Some(self.memory_fraction)
            && self.jax_version >= POOL_GROWS_SINCE
    }

    fn fraction_bytes(&self) -> u64 {
        let total = self.total_memory_bytes as f64;
        match self.kind {
            AllocatorKind::Bfc if self.unified_memory => {
                self.rounded((total * self.memory_fraction.max(1.0)) as u64)
            }
            AllocatorKind::Bfc => self.rounded((total * self.memory_fraction) as u64),
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
            AllocatorKind::Bfc if self.jax_version >= (0, 10, 2) => PAGE_BYTES,
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

    /// Returns `true` if one partitioned pool serves default and collective memory.
    pub fn is_partitioned(&self) -> bool {
        self.kind == AllocatorKind::Bfc
            && self.preallocate
            && self.spatial_partitioning
            && self.jax_version >= (0, 11, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(options(0.9).collective_limit_bytes(), 80 * GIB - nine_tenths);
        assert_eq!(options(-1.0).limit_bytes(), 0);
        let unified = PoolOptions { unified_memory: true, ..options(0.75) };
        assert_eq!(unified.limit_bytes(), 80 * GIB);
        let twice = PoolOptions { memory_fraction: 2.0, ..unified };
        assert_eq!(twice.limit_bytes(), 160 * GIB);
    }

    #[test]
    fn a_cap_has_an_effect_on_one_kind_of_pool_only() {
        let growing = PoolOptions {
            total_memory_bytes: 80 * GIB + 4,
            memory_cap: Some(0.9),
            jax_version: (0, 13, 0),
            ..PoolOptions::default()
        };
        assert_eq!(growing.start_bytes(), Some(60 * GIB + PAGE_BYTES));
        assert_eq!(growing.limit_bytes(), 72 * GIB);
        let changes: [fn(&mut PoolOptions); 7] = [
            |client| client.jax_version = (0, 12, 0),
            |client| client.preallocate = false,
            |client| client.spatial_partitioning = false,
            |client| client.kind = AllocatorKind::CudaAsync,
            |client| client.kind = AllocatorKind::Vmm,
            |client| client.unified_memory = true,
            |client| client.memory_cap = Some(0.75),
        ];
        for change in changes {
            let mut fixed = growing.clone();
            change(&mut fixed);
            let uncapped = PoolOptions { memory_cap: None, ..fixed.clone() };
            assert_eq!(fixed.start_bytes(), None, "{fixed:?}");
            assert_eq!(fixed.limit_bytes(), uncapped.limit_bytes(), "{fixed:?}");
        }
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
        assert_eq!(options((0, 10, 1), AllocatorKind::Bfc).limit_bytes(), product);
        assert_eq!(options((0, 10, 2), AllocatorKind::Bfc).limit_bytes(), page_above);
        for kind in [AllocatorKind::CudaAsync, AllocatorKind::Vmm] {
            assert_eq!(options((0, 10, 2), kind).limit_bytes(), product);
        }
        let given = |jax_version| PoolOptions {
            collective_memory_bytes: Some(PAGE_BYTES + 1),
            ..options(jax_version, AllocatorKind::Bfc)
        };
        assert_eq!(given((0, 10, 1)).collective_limit_bytes(), PAGE_BYTES + 1);
        assert_eq!(given((0, 10, 2)).collective_limit_bytes(), 2 * PAGE_BYTES);
    }
}
