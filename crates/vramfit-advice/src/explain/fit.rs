//! The largest request that another pool with the same live blocks as a dumped one could have met.
//!
//! The live blocks are allocated again, in the order of their addresses, in a fresh pool of vramfit's allocators; then the largest
//! request that still succeeds is searched for. The order in which the program allocated them is not in a
//! dump, so this is what the pool could do after a fresh start, not a rerun of the program.

use super::pool_dump::PoolDump;
use crate::allocator::{
    Allocator, Bfc, BfcOptions, ChunkTag, JaxVersion, PAGE_BYTES, PoolEnd, PoolSpace,
    SimulatedDeviceMemory, Spatial, SpatialPolicy,
};

/// A pool allocates multiples of this.
const UNIT: u64 = 256;
/// Live blocks that are placed anew; a search places all of them some 30 times.
const MAX_BLOCKS: usize = 50_000;

/// A pool that the same blocks are placed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherPool {
    /// The whole limit from the start, one end.
    Preallocated,
    /// Regions as needed.
    Growing,
    /// The pool of JAX 0.11 and later, partitioned into two ends.
    Partitioned,
}

/// Returns the largest request that a fresh pool with this limit could meet beside the live blocks; 0 where
/// none. `None` where the dump does not list them, and where they do not fit themselves.
pub(super) fn fit_elsewhere(
    dump: &PoolDump,
    pool: OtherPool,
    limit_bytes: u64,
    jax: JaxVersion,
) -> Option<u64> {
    let policy = match jax < (0, 12, 0) {
        true => SpatialPolicy::JAX_0_11,
        false => SpatialPolicy::JAX_0_12,
    };
    let blocks = live_blocks(dump, pool, policy);
    if !dump.is_complete() || blocks.len() > MAX_BLOCKS {
        return None;
    }
    let place = || place(pool, limit_bytes, policy, &blocks);
    place()?;
    let fits = |units: u64| {
        let bytes = units * UNIT;
        let refused =
            |mut pool: Box<dyn Allocator>| pool.allocate(bytes, UNIT, PoolSpace::Default).is_err();
        !place().is_none_or(refused)
    };
    // What fits is a range from below: a smaller request fits wherever a larger one does.
    let (mut most, mut least_refused) = (0, limit_bytes / UNIT + 1);
    while least_refused - most > 1 {
        let middle = most + (least_refused - most) / 2;
        if fits(middle) {
            most = middle;
        } else {
            least_refused = middle;
        }
    }
    Some(most * UNIT)
}

/// Returns the blocks that the pool has to hold: collective memory has a pool of its own in the others.
fn live_blocks(dump: &PoolDump, pool: OtherPool, policy: SpatialPolicy) -> Vec<(u64, PoolSpace)> {
    let default_tag = match policy.default_end {
        PoolEnd::Lower => ChunkTag::Lower,
        PoolEnd::Upper => ChunkTag::Upper,
    };
    let partitioned = dump.is_partitioned();
    let used = dump.chunks().filter(|chunk| chunk.in_use);
    let blocks = used.map(|chunk| match partitioned && chunk.tag != default_tag {
        true => (chunk.bytes, PoolSpace::Collective),
        false => (chunk.bytes, PoolSpace::Default),
    });
    let held = |(_, space): &(u64, PoolSpace)| {
        pool == OtherPool::Partitioned || *space == PoolSpace::Default
    };
    blocks.filter(held).collect()
}

/// Makes a pool and allocates the blocks in it; `None` where one does not fit.
fn place(
    pool: OtherPool,
    limit_bytes: u64,
    policy: SpatialPolicy,
    blocks: &[(u64, PoolSpace)],
) -> Option<Box<dyn Allocator>> {
    // The driver hands out whole pages.
    let device_bytes = limit_bytes.checked_next_multiple_of(PAGE_BYTES)?;
    let memory = Box::new(SimulatedDeviceMemory::new(device_bytes));
    let options =
        BfcOptions { limit_bytes, grows: pool == OtherPool::Growing, ..BfcOptions::default() };
    let mut allocator: Box<dyn Allocator> = match pool {
        OtherPool::Partitioned => Box::new(Spatial::new(options, policy, memory)),
        OtherPool::Preallocated | OtherPool::Growing => Box::new(Bfc::new(options, memory)),
    };
    for &(bytes, space) in blocks {
        allocator.allocate(bytes, UNIT, space).ok()?;
    }
    Some(allocator)
}
