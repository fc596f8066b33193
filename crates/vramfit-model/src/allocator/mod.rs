//! JAX's GPU memory allocators: no memory is moved, only addresses are given out.
//!
//! An [`Allocator`] is what a JAX client calls for every buffer. It takes its memory from
//! [`DeviceMemory`], the GPU itself, which may be partly taken by others. [`build`] makes the
//! allocator that a client with given [`PoolOptions`] would make.
//!
//! ```
//! use vramfit_model::allocator::{SimulatedDeviceMemory, PoolOptions, PoolSpace, build};
//!
//! const MIB: u64 = 1 << 20;
//! let options = PoolOptions {
//!     total_memory_bytes: 1024 * MIB,
//!     memory_fraction: 1.0,
//!     ..PoolOptions::default()
//! };
//! let mut pool = build(&options, Box::new(SimulatedDeviceMemory::new(1024 * MIB)));
//! let mut take = |mib: u64| pool.allocate(mib * MIB, 64, PoolSpace::Default);
//! let first = take(400)?;
//! take(1)?;
//! let last = take(400)?;
//! pool.free(first)?;
//! pool.free(last)?;
//!
//! // All but 1 MiB is free, and yet 700 MiB cannot be allocated: the pool is fragmented.
//! assert_eq!(pool.stats().bytes_in_use, MIB);
//! assert!(pool.allocate(700 * MIB, 64, PoolSpace::Default).is_err());
//! let free: Vec<u64> = pool
//!     .chunks()
//!     .iter()
//!     .filter(|chunk| !chunk.in_use)
//!     .map(|chunk| chunk.bytes / MIB)
//!     .collect();
//! assert_eq!(free, [400, 623]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | `kind.rs` | the kinds of allocator, by JAX's names |
//! | `config.rs` | the client's options; limits as XLA computes them |
//! | `build.rs` | from the options to an allocator |
//! | `device_memory.rs` | the memory of one GPU, in this process |
//! | `bfc.rs` | the classic best-fit-with-coalescing pool |
//! | `spatial.rs`, `spatial_policy.rs` | the partitioned pool of JAX 0.11 and later |
//! | `extension.rs`, `reserved_range.rs` | how that pool is extended, and the addresses it keeps for this |
//! | `chunk_table.rs`, `address_map.rs`, `free_set.rs`, `regions.rs`, `pool.rs` | what BFC pools are made of |
//! | `preallocation.rs` | whether a pool that takes its limit at once got it |
//! | `collective.rs` | the separate pool for collective memory |
//! | `platform.rs`, `cuda_async.rs`, `vmm.rs` | the other kinds, partly models |
//! | `counted_heap.rs`, `live_allocations.rs`, `cuda_malloc.rs` | what those are made of |
//! | `live_set.rs` | what all allocators do alike |
//! | `log_record.rs` | a record of the log |
//! | `dump.rs` | what a BFC pool logs when a request fails |
//! | `message.rs` | the text of the exception |

mod address_map;
mod bfc;
mod bfc_options;
mod build;
mod chunk_table;
mod collective;
mod config;
mod counted_heap;
mod cuda_async;
mod cuda_malloc;
mod device_memory;
mod dump;
mod extension;
mod free_set;
mod kind;
mod live_allocations;
mod live_set;
mod log_record;
mod message;
mod platform;
mod pool;
mod preallocation;
mod regions;
mod reserved_range;
mod spatial;
mod spatial_policy;
#[cfg(test)]
mod testing;
mod units;
mod vmm;

use std::sync::Arc;

pub use bfc::Bfc;
pub use bfc_options::{Backpedal, BfcOptions};
pub use build::build;
pub use chunk_table::ChunkTag;
pub use config::{DEFAULT_FRACTION, JaxVersion, POOL_GROWS_SINCE, PoolOptions};
pub use device_memory::{PAGE_BYTES, SimulatedDeviceMemory};
pub use dump::refusal_warning;
pub use kind::AllocatorKind;
pub use live_set::LiveSet;
pub use log_record::{LogRecord, Severity};
pub use message::{human_readable_bytes, out_of_memory_text};
pub use preallocation::is_fully_preallocated;
pub use regions::SharedDeviceMemory;
pub use spatial::Spatial;
pub use spatial_policy::{EndPolicy, PoolEnd, SpatialPolicy, SplitRule};
pub use units::round_up;

use crate::error::Result;

/// The largest region that an allocator takes from a GPU: 256 TiB less one unit of 256 bytes.
pub const MAX_REGION_BYTES: u64 = (1 << 48) - 256;

/// Which separate pool, or which end of a spatially partitioned one, a request is for: XLA's memory space of a
/// buffer in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolSpace {
    /// Ordinary device memory.
    #[default]
    Default,
    /// Memory for collective operations (XLA memory space 1).
    Collective,
}

impl PoolSpace {
    /// All of them, in the order of XLA's numbers.
    pub const ALL: [PoolSpace; 2] = [PoolSpace::Default, PoolSpace::Collective];
}

/// The GPU's memory as the driver hands it out, in large pieces.
///
/// XLA calls this the sub-allocator.
pub trait DeviceMemory: Send {
    /// Asks for `bytes` at `alignment`; returns the address and the bytes granted, or `None`.
    ///
    /// Addresses and grants are multiples of 256, as those of any driver.
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region>;

    /// Gives back a region obtained from [`DeviceMemory::allocate`].
    fn free(&mut self, region: Region);

    /// Returns the bytes that the driver would report as free.
    fn free_bytes(&self) -> u64;

    /// Returns `true` if adjacent regions may be merged. False for GPU memory in JAX.
    fn merges_regions(&self) -> bool {
        false
    }
}

/// A piece of device memory obtained from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes granted, which may be more than asked for.
    pub bytes: u64,
}

/// The statistics that `Device.memory_stats()` shows, under the same names.
///
/// `None` means that this allocator does not report the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Successful allocations so far.
    pub num_allocs: u64,
    /// Bytes given out now, rounding included.
    pub bytes_in_use: u64,
    /// Maximum of `bytes_in_use` so far.
    pub peak_bytes_in_use: u64,
    /// Largest piece handed out so far.
    pub largest_alloc_size: u64,
    /// What the allocator may take at most.
    pub bytes_limit: Option<u64>,
    /// Bytes reserved, where the allocator keeps that figure.
    pub bytes_reserved: u64,
    /// Maximum of `bytes_reserved` so far.
    pub peak_bytes_reserved: u64,
    /// Limit of `bytes_reserved`.
    pub bytes_reservable_limit: Option<u64>,
    /// Largest free block inside the pool.
    pub largest_free_block_bytes: u64,
    /// Bytes obtained from the driver now.
    pub pool_bytes: Option<u64>,
    /// Maximum of `pool_bytes` so far.
    pub peak_pool_bytes: Option<u64>,
}

impl Stats {
    /// Counts an allocation of this many bytes.
    fn count_allocation(&mut self, bytes: u64) {
        self.num_allocs += 1;
        self.bytes_in_use += bytes;
        self.peak_bytes_in_use = self.peak_bytes_in_use.max(self.bytes_in_use);
        self.largest_alloc_size = self.largest_alloc_size.max(bytes);
    }
}

/// A request that could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocError {
    /// Not enough memory, or none in one piece.
    OutOfMemory,
    /// XLA's own allocator would abort the process or never return here; the text says which.
    Fatal(String),
}

impl std::fmt::Display for AllocError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AllocError::OutOfMemory => f.write_str("out of memory"),
            AllocError::Fatal(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for AllocError {}

/// Shorthand for results of requests.
pub type AllocResult<T> = Result<T, AllocError>;

/// How far an allocator's answers can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// Agrees with recordings of the real allocator, operation by operation.
    Exact,
    /// Follows what is known; the text says what is not.
    Model(&'static str),
}

/// A stretch of a pool: one line of its address map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Address of the first byte.
    pub address: u64,
    /// Its size, rounding and unsplit surplus included.
    pub bytes: u64,
    /// What the client asked for; 0 in a free chunk.
    pub requested_bytes: u64,
    /// Whether it is given out.
    pub in_use: bool,
    /// The end of a partitioned pool it belongs to; `Lower` in all others.
    pub tag: ChunkTag,
    /// The bin a free chunk is in. `None` for chunks in use and for the gap.
    pub bin: Option<u8>,
    /// The label that [`Allocator::set_label`] had set when it was allocated.
    pub label: Option<Arc<str>>,
}

/// One of JAX's allocators.
pub trait Allocator: Send {
    /// Returns the live allocations.
    fn live_set(&self) -> &dyn LiveSet;

    /// Returns the live allocations, to be changed.
    fn live_set_mut(&mut self) -> &mut dyn LiveSet;

    /// Allocates `bytes` and returns the address.
    ///
    /// No bytes give address 0, which is counted nowhere and may be freed.
    ///
    /// # Errors
    /// A [`AllocError`] when the real allocator would not have succeeded.
    fn allocate(&mut self, bytes: u64, alignment: u64, space: PoolSpace) -> AllocResult<u64>;

    /// Frees what was allocated at `address`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when nothing is allocated there.
    fn free(&mut self, address: u64) -> Result<()>;

    /// Returns the statistics now, of the default memory space only, as in JAX.
    fn stats(&self) -> Stats;

    /// Returns the most that was given out so far, as [`Stats::peak_bytes_in_use`], at no cost.
    fn peak_bytes(&self) -> u64 {
        self.live_set().usage().peak_bytes_in_use
    }

    /// Returns the largest free block inside the pool, whether or not [`Allocator::stats`] shows
    /// it; `None` where nothing is pooled.
    fn largest_free_block(&self) -> Option<u64> {
        Some(self.stats().largest_free_block_bytes).filter(|bytes| *bytes > 0)
    }

    /// Returns the largest request for which it could obtain memory from a GPU that has `gpu_bytes` for
    /// this process: what neither other processes nor the CUDA context use. The driver gives whole
    /// pages.
    fn obtainable_bytes(&self, gpu_bytes: u64) -> u64;

    /// Returns `true` if `Device.memory_stats()` shows them; where not, it returns `None` in JAX.
    fn reports_stats(&self) -> bool {
        true
    }

    /// Returns the name in XLA's log lines, such as `GPU_0_bfc`.
    fn name(&self) -> &str {
        self.live_set().name()
    }

    /// Returns the chunks in address order, free ones included where the allocator keeps them.
    fn chunks(&self) -> Vec<Chunk> {
        self.live_set().chunks()
    }

    /// Returns the end of the pool from which default memory grows.
    fn default_end(&self) -> PoolEnd {
        PoolEnd::Lower
    }

    /// Returns the regions that the default pool has from the GPU, by address; none where nothing is
    /// pooled.
    fn regions(&self) -> Vec<Region> {
        self.live_set().regions()
    }

    /// Returns the status text that the client raises when a request of `bytes` fails, without
    /// the `RESOURCE_EXHAUSTED: ` that JAX puts in front.
    fn out_of_memory_message(&self, bytes: u64) -> String {
        out_of_memory_text(bytes, self.live_set().jax_version())
    }

    /// Returns what goes to the log when a request of `bytes` fails for good, before the exception.
    ///
    /// Empty for allocators that write nothing of their own.
    fn out_of_memory_log(&self, bytes: u64, space: PoolSpace) -> Vec<LogRecord> {
        let _ = (bytes, space);
        Vec::new()
    }

    /// Sets what the following allocations are for, until it is set again.
    ///
    /// The text goes into [`Chunk::label`] and into the dump as it is. XLA 0.11 writes
    /// `xla.execute{executable=jit_step}`.
    fn set_label(&mut self, text: Option<&str>) {
        self.live_set_mut().set_label(text);
    }

    /// Makes the statistics of the default memory space begin again, as `ClearStats` of XLA's allocators does: no
    /// allocations so far, none that was the largest, and the bytes in use as the peak. The pool's own peak stays.
    fn clear_stats(&mut self) {
        let usage = self.live_set_mut().usage_mut();
        usage.num_allocs = 0;
        usage.peak_bytes_in_use = usage.bytes_in_use;
        usage.largest_alloc_size = 0;
    }

    /// Says how far the answers can be trusted.
    fn fidelity(&self) -> Fidelity {
        self.live_set().fidelity()
    }
}
