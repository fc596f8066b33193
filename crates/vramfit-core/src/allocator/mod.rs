//! JAX's GPU memory allocators, modelled exactly: no memory is moved, only addresses are given out.
//!
//! An [`Allocator`] is what a JAX client calls for every buffer. It takes its memory from
//! [`DeviceMemory`], the card itself, which may be partly taken by others.

use crate::error::Result;

/// Which end of a spatially partitioned pool, or which separate pool, a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Space {
    /// Ordinary device memory.
    #[default]
    Default,
    /// Memory for collective operations (XLA memory space 1).
    Collective,
}

/// The card's memory as the driver hands it out, in large pieces.
///
/// XLA calls this the sub-allocator.
pub trait DeviceMemory: Send {
    /// Asks for `bytes` at `alignment`; returns the address and the bytes granted, or `None`.
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region>;

    /// Gives back a region obtained from [`DeviceMemory::allocate`].
    fn free(&mut self, region: Region);

    /// Says whether adjacent regions may be merged. False for GPU memory in JAX.
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

/// A request that could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not enough memory, or none in one piece.
    OutOfMemory,
    /// XLA's own allocator would abort the process or never return here; the text says which.
    Fatal(String),
}

/// One of JAX's allocators.
pub trait Allocator: Send {
    /// Allocates `bytes` (more than 0) and returns the address.
    ///
    /// # Errors
    /// A [`Refusal`] when the real allocator would not have succeeded.
    fn allocate(
        &mut self,
        bytes: u64,
        alignment: u64,
        space: Space,
    ) -> std::result::Result<u64, Refusal>;

    /// Frees what was allocated at `address`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when nothing is allocated there.
    fn free(&mut self, address: u64) -> Result<()>;

    /// Returns the statistics now.
    fn stats(&self) -> Stats;
}
