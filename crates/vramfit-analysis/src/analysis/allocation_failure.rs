//! Requests for memory that were refused, and what was there instead.

use super::device_summary::RequestContext;
use crate::replay::PoolState;

/// How many refused requests an [`super::RunSummary`] keeps. A loop that tries until it fits makes many.
pub const MAX_FAILURES_KEPT: usize = 100;

/// A request that was refused, and what there was instead.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocationFailure {
    /// On which device.
    pub device: u32,
    /// When, and for what.
    pub context: RequestContext,
    /// What its execution had still to allocate, the request included: the outputs and temporaries that were not
    /// allocated yet, without copies of arguments that were not donated.
    pub remaining_bytes: u64,
    /// What the block at the end of the pool has beyond its rounded size: in use, since it was too little to be split
    /// off, and free in a larger pool.
    pub pool_end_surplus_bytes: u64,
    /// What the program was told.
    pub message: String,
    /// What the pool looked like.
    pub pool: PoolState,
    /// The largest request for which the pool could still have grown, within its limit and what
    /// the GPU had free. `None` where nothing is pooled.
    pub growth_bytes: Option<u64>,
    /// Where nothing is pooled: what the GPU should have had free, in whole pages, going by its
    /// size, what others use and the context.
    pub gpu_free_bytes: Option<u64>,
    /// Whether the pool was to be preallocated, as opposed to one that grows.
    pub is_preallocated: bool,
    /// What other processes held of the GPU then.
    pub used_by_others_bytes: u64,
    /// Set when the real process would not have gone on at all (XLA aborts or hangs); says why.
    pub fatal: Option<String>,
    /// Whether the program executed anything after it.
    pub recovered: bool,
}

impl AllocationFailure {
    /// Returns the largest request that could have been met instead, rounding aside.
    pub fn available_bytes(&self) -> u64 {
        let largest = self.pool.largest_free_block_bytes.or(self.gpu_free_bytes);
        largest.unwrap_or(0).max(self.growth_bytes.unwrap_or(0))
    }

    /// Returns how much was missing: to the request in one piece, or to its whole execution in total, whichever is
    /// more.
    ///
    /// What later executions would have asked for is not in it. 0 when memory was not what was missing: the free
    /// block was for the other end of a partitioned pool, or the allocator died.
    pub fn short_bytes(&self) -> u64 {
        let request = self.context.requested_bytes.saturating_sub(self.available_bytes());
        let free = self.free_bytes().unwrap_or_else(|| self.available_bytes());
        let free = free.saturating_add(self.pool_end_surplus_bytes);
        request.max(self.remaining_bytes.saturating_sub(free))
    }

    /// Returns what would have been in use if its execution had been given all that it asked for.
    pub fn needed_bytes(&self) -> u64 {
        let in_use = self.pool.in_use_bytes.saturating_sub(self.pool_end_surplus_bytes);
        in_use.saturating_add(self.remaining_bytes)
    }

    /// Returns what was free in all, `None` where nothing is pooled: in the pool, and by which it
    /// could have grown. A preallocated pool that is smaller than its limit got no more from the GPU;
    /// it is empty before the first request that it can meet.
    pub fn free_bytes(&self) -> Option<u64> {
        let free = self.pool.free_bytes?;
        let is_empty = self.pool.in_use_bytes == 0 && free == 0;
        let growth = self.growth_bytes.filter(|_| is_empty || !self.is_preallocated);
        Some(free.saturating_add(growth.unwrap_or(0)))
    }

    /// Returns `true` if enough was free in total for the whole execution, only not in one piece. Where the free total
    /// is in one block to rounding, what is missing is memory: a smaller hole brings nothing.
    pub fn fragmented(&self) -> bool {
        /// What is free beside the largest block is this part of the whole, at least.
        const MIN_FREE_ELSEWHERE_FRACTION: u64 = 100;
        let free = self.free_bytes().filter(|_| self.fatal.is_none());
        free.is_some_and(|free| {
            let elsewhere = free.saturating_sub(self.available_bytes());
            free >= self.remaining_bytes && elsewhere > free / MIN_FREE_ELSEWHERE_FRACTION
        })
    }
}
