//! How much of a GPU's memory JAX's pool can have, once everything else that needs memory there is subtracted.
//!
//! JAX's memory fraction is a fraction of the GPU's total memory; what other processes use, the CUDA
//! context and the libraries play no part in it. Several processes on one GPU, or memory to be left
//! free, need this arithmetic; it is done here once, for every command.

use std::fmt;

use crate::allocator::PAGE_BYTES;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::gpu::{self, Gpu};
use crate::host::HostGpu;

/// Estimate of what the libraries of one process need on a GPU outside JAX's pool.
///
/// A cuBLAS handle is reported at about 60 MB, one of cuSOLVER at about 250 MB, cuDNN's at tens to
/// hundreds of MB, kernels at up to tens of MiB a program; hardly any program has all of them.
pub const LIBRARIES_BYTES: u64 = 512 << 20;

/// Estimate of what NCCL needs on each GPU of a process that uses several: the upper end of the 100 MB
/// to 1 GB that are usual for one set of communicators.
pub const COLLECTIVES_BYTES: u64 = 1 << 30;

/// Assumed size of the CUDA context on a GPU that is not in the catalog: more than was measured on any
/// (256 MiB on an RTX 3090, 426 MiB on an RTX 6000 Ada).
pub const UNKNOWN_CONTEXT_BYTES: u64 = 512 << 20;

/// What needs memory on one GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemoryBudget {
    /// The GPU's memory as CUDA reports it to JAX: what a fraction is a fraction of. A MIG slice
    /// has its own, not its parent's.
    pub total_bytes: u64,
    /// What is used already: by a display, by other processes. Processes of the same split do not count.
    pub occupied_bytes: u64,
    /// What each process needs outside its pool, for context and libraries. An estimate.
    pub outside_bytes: u64,
}

impl fmt::Display for GpuMemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in total, {} used by other processes, {} needed outside the pool of each process (estimated)",
            Bytes(self.total_bytes),
            Bytes(self.occupied_bytes),
            Bytes(self.outside_bytes)
        )
    }
}

impl GpuMemoryBudget {
    /// Returns the budget of a GPU of the catalog for a process that uses `gpu_count` of them.
    pub fn from_catalog(gpu: &Gpu, occupied_bytes: u64, gpu_count: u32) -> Self {
        GpuMemoryBudget {
            total_bytes: gpu.total_memory_bytes,
            occupied_bytes,
            outside_bytes: outside_bytes(gpu.context_bytes_estimate, gpu_count),
        }
    }

    /// Returns the budget of a GPU of this machine for a process that uses `gpu_count` of them; `None`
    /// where the driver does not report the GPU's memory.
    pub fn from_driver(gpu: &HostGpu, gpu_count: u32) -> Option<Self> {
        let memory = gpu.memory?;
        let context = gpu::find(&gpu.name)
            .map_or(UNKNOWN_CONTEXT_BYTES, |known| known.context_bytes_estimate);
        // CUDA reports the total without what the driver keeps for itself. Where an old driver does not
        // report that separately, the total is a little too large, and a fraction of it a little too small.
        let total_bytes = memory.total_bytes.saturating_sub(memory.reserved_bytes.unwrap_or(0));
        Some(GpuMemoryBudget {
            total_bytes,
            occupied_bytes: total_bytes.saturating_sub(memory.free_bytes),
            outside_bytes: outside_bytes(context, gpu_count),
        })
    }

    /// Returns what is left for the pool of one process.
    pub fn remaining_bytes(&self) -> u64 {
        let others = self.occupied_bytes.saturating_add(self.outside_bytes);
        self.total_bytes.saturating_sub(others)
    }

    /// Returns by how many bytes a pool leaves too little of the GPU for the CUDA context and the
    /// libraries of its process; `None` where it leaves enough.
    ///
    /// Every command judges headroom by this. What others use plays no part in it: a pool that is too
    /// large because of them is another matter, see [`GpuMemoryBudget::remaining_bytes`].
    pub fn shortfall_outside(&self, pool_bytes: u64) -> Option<u64> {
        let left = self.total_bytes.saturating_sub(pool_bytes);
        self.outside_bytes.checked_sub(left).filter(|missing| *missing > 0)
    }

    /// Returns how large the pool of each of `processes` processes can be, in whole pages, so that all of
    /// them fit and `keep_free_bytes` of the GPU are left.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when nothing is left for the pools, or there is no process.
    pub fn pool_bytes_each(&self, processes: u32, keep_free_bytes: u64) -> Result<u64> {
        let count = u64::from(processes);
        if count == 0 {
            return Err(no_processes());
        }
        let outside = self.outside_bytes.saturating_mul(count);
        let unavailable =
            self.occupied_bytes.saturating_add(keep_free_bytes).saturating_add(outside);
        let each = self.total_bytes.saturating_sub(unavailable) / count;
        let pages = each / PAGE_BYTES * PAGE_BYTES;
        if pages > 0 {
            return Ok(pages);
        }
        let mut uses = vec![format!(
            "{} for context and libraries of {}",
            Bytes(outside),
            if count == 1 {
                "one process".to_owned()
            } else {
                format!("{count} processes ({} each)", Bytes(self.outside_bytes))
            }
        )];
        if self.occupied_bytes > 0 {
            uses.push(format!("{} used by other processes", Bytes(self.occupied_bytes)));
        }
        if keep_free_bytes > 0 {
            uses.push(format!("{} to keep free", Bytes(keep_free_bytes)));
        }
        Err(Error::invalid_argument(format!(
            "no memory is left for a pool on a GPU of {}: {}",
            Bytes(self.total_bytes),
            uses.join(", ")
        ))
        .hint(if self.occupied_bytes > 0 {
            "stop the processes that use the memory, start fewer processes, or keep less free"
        } else {
            "start fewer processes, or keep less free"
        }))
    }
}

/// The error for a GPU that is to be split among no processes.
pub(super) fn no_processes() -> Error {
    Error::invalid_argument("a GPU cannot be split among 0 processes")
        .hint("give the number of processes, such as `2`")
}

/// Returns the bytes of a pool that may take that fraction of a GPU, as XLA computes them: the fraction
/// arrives in 32 bits. Rounding to pages, which depends on the release, is not in it. A fraction that is
/// negative or not a number gives 0.
pub fn pool_bytes(fraction: f64, total_bytes: u64) -> u64 {
    (total_bytes as f64 * f64::from(fraction as f32)) as u64
}

/// Returns the total memory of the smallest GPU on which a pool of that fraction leaves enough, as
/// [`GpuMemoryBudget::shortfall_outside`] judges it for an unknown GPU; `None` where there is none.
pub fn min_total_bytes(fraction: f64) -> Option<u64> {
    let left = 1.0 - f64::from(fraction as f32);
    let needed = outside_bytes(UNKNOWN_CONTEXT_BYTES, 1);
    (left > 0.0).then(|| (needed as f64 / left).ceil() as u64)
}

/// Returns an estimate of what one process needs outside its pool on each of the GPUs that it uses.
pub fn outside_bytes(context_bytes: u64, gpu_count: u32) -> u64 {
    let collectives = if gpu_count > 1 { COLLECTIVES_BYTES } else { 0 };
    context_bytes + LIBRARIES_BYTES + collectives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::host::{GpuMemory, Process};

    const GIB: u64 = 1 << 30;

    fn budget(occupied_bytes: u64) -> GpuMemoryBudget {
        GpuMemoryBudget { total_bytes: 24 * GIB, occupied_bytes, outside_bytes: GIB }
    }

    #[test]
    fn what_is_not_the_pool_is_subtracted_first() {
        assert_eq!(budget(0).pool_bytes_each(1, 0).unwrap(), 23 * GIB);
        assert_eq!(budget(0).pool_bytes_each(2, 0).unwrap(), 11 * GIB);
        assert_eq!(budget(2 * GIB).pool_bytes_each(2, 4 * GIB).unwrap(), 8 * GIB);
        // A third of 21 GiB and a bit, down to a whole page.
        let third = GpuMemoryBudget { total_bytes: 24 * GIB + 10, ..budget(0) };
        assert_eq!(third.pool_bytes_each(3, 0).unwrap(), 7 * GIB);
    }

    #[test]
    fn headroom_is_counted_in_bytes() {
        for (pool, missing) in [
            (0, None),
            (23 * GIB, None),
            (23 * GIB + 1, Some(1)),
            (24 * GIB, Some(GIB)),
            (99 * GIB, Some(GIB)),
        ] {
            // What others use changes nothing about it.
            assert_eq!(budget(0).shortfall_outside(pool), missing, "{pool}");
            assert_eq!(budget(9 * GIB).shortfall_outside(pool), missing, "{pool}");
        }
    }

    #[test]
    fn the_smallest_gpu_for_a_fraction_is_just_large_enough() {
        for fraction in [0.5, 0.9, 0.95, 0.99] {
            let total_bytes = min_total_bytes(fraction).unwrap();
            let of = |total_bytes| GpuMemoryBudget {
                total_bytes,
                occupied_bytes: 0,
                outside_bytes: outside_bytes(UNKNOWN_CONTEXT_BYTES, 1),
            };
            let missing = |total| of(total).shortfall_outside(pool_bytes(fraction, total));
            assert_eq!(missing(total_bytes + 1), None, "{fraction}");
            // A fraction is 32 bits wide, so a few bytes below may still do.
            assert!(missing(total_bytes - GIB / 100).is_some(), "{fraction}");
        }
        assert_eq!(min_total_bytes(1.0), None);
    }

    #[test]
    fn a_gpu_without_memory_left_is_refused_with_the_sum() {
        let error = budget(20 * GIB).pool_bytes_each(3, 2 * GIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        for part in ["24.0 GiB", "3.0 GiB for", "20.0 GiB used", "2.0 GiB to keep"] {
            assert!(error.message().contains(part), "{error} lacks {part}");
        }
        assert!(budget(0).pool_bytes_each(0, 0).is_err());
        assert!(budget(u64::MAX).pool_bytes_each(u32::MAX, u64::MAX).is_err());
    }

    #[test]
    fn what_the_driver_reserves_is_no_part_of_the_total_and_siblings_are_not_others() {
        let sibling = Process { pid: 7, used_bytes: Some(20 * GIB), ..Process::default() };
        let mut gpu = HostGpu {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory: Some(GpuMemory {
                total_bytes: 80 * GIB,
                reserved_bytes: Some(GIB),
                used_bytes: 30 * GIB,
                free_bytes: 49 * GIB,
            }),
            processes: vec![sibling, Process { pid: 8, ..Process::default() }],
            ..HostGpu::default()
        };
        gpu.remove_processes(|process| process.pid == 7);
        assert_eq!(gpu.processes.len(), 1);
        let budget = GpuMemoryBudget::from_driver(&gpu, 1).unwrap();
        assert_eq!((budget.total_bytes, budget.occupied_bytes), (79 * GIB, 10 * GIB));
        let h100 = gpu::find("h100-80g").unwrap();
        assert_eq!(budget.outside_bytes, h100.context_bytes_estimate + LIBRARIES_BYTES);
        assert_eq!(GpuMemoryBudget::from_driver(&HostGpu::default(), 1), None);
        let unknown = HostGpu { name: "some prototype".to_owned(), ..gpu };
        assert_eq!(
            GpuMemoryBudget::from_driver(&unknown, 2).unwrap().outside_bytes,
            UNKNOWN_CONTEXT_BYTES + LIBRARIES_BYTES + COLLECTIVES_BYTES
        );
    }
}
