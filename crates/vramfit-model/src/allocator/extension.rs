//! How a partitioned pool takes memory that begins with a part of its limit and is extended later.
//!
//! Follows `Extend` in XLA's `bfc_allocator.cc` as the plugin of JAX 0.12.0.1 has it. `fixtures/bfc-growth` holds
//! recordings of it. Which releases turn it on is in [`super::config`].

use super::bfc::padding;
use super::chunk_table::ChunkTag;
use super::device_memory::{PAGE_BYTES, whole_pages};
use super::preallocation::preallocated_bytes;
use super::regions::{FIRST_REGION_BYTES, Regions, smaller_request};
use super::spatial::Spatial;
use super::spatial_policy::PoolEnd;
use super::{AllocError, AllocResult, DeviceMemory, Region, round_up};

impl Spatial {
    /// Takes the first region of a pool that is extended later.
    pub(super) fn take_start(&mut self, alignment: u64, start_bytes: u64) -> AllocResult<()> {
        let region = self.pool.regions.take_start(alignment, start_bytes);
        let region = region.ok_or(AllocError::OutOfMemory)?;
        self.lower_end_limit = Some(region.address + region.bytes);
        let handle = self.pool.add_region(region, ChunkTag::Gap);
        self.coalesce(handle)
    }

    /// Extends the pool for a request that fits nowhere. Only the upper end does so.
    pub(super) fn extend(&mut self, end: PoolEnd, rounded: u64, alignment: u64) -> AllocResult<()> {
        let region = self.pool.regions.list.first();
        let Some(region) = region.filter(|_| end == PoolEnd::Upper) else {
            return Err(AllocError::OutOfMemory);
        };
        let last = self.pool.chunks.walk(region.first).last();
        // What is free at the end of the pool need not be had again.
        let (begin, free) = match last {
            Some((_, slot)) if !slot.in_use && slot.tag != ChunkTag::Lower => {
                (slot.address, slot.size)
            }
            _ => (region.address + region.bytes, 0),
        };
        let padded = round_up(padding(begin, alignment)).and_then(|skip| rounded.checked_add(skip));
        let least = padded.and_then(|bytes| bytes.checked_sub(free));
        let region = least
            .filter(|bytes| *bytes > 0)
            .and_then(|least| self.pool.regions.extend(alignment, rounded, least));
        let region = region.ok_or(AllocError::OutOfMemory)?;
        let handle = self.pool.add_region(region, ChunkTag::Upper);
        self.coalesce(handle)
    }
}

impl Regions {
    /// Takes the first region: the whole of `start_bytes`, or as much of it as the GPU grants.
    ///
    /// The later regions begin small again and double, as in a pool that is not preallocated.
    pub(super) fn take_start(&mut self, alignment: u64, start_bytes: u64) -> Option<Region> {
        self.next_region_bytes = start_bytes;
        let (region, _) = self.request_pages(alignment, start_bytes, PAGE_BYTES)?;
        let first = self.limit_bytes.min(FIRST_REGION_BYTES);
        self.next_region_bytes = round_up(first).unwrap_or(u64::MAX);
        Some(region)
    }

    /// Takes a region next to the last one, for a request of `rounded` bytes that fits nowhere.
    ///
    /// `least_bytes` is what the request needs beyond what is free at the end of the pool. The GPU is asked for more,
    /// and may grant no less.
    pub(super) fn extend(
        &mut self,
        alignment: u64,
        rounded: u64,
        least_bytes: u64,
    ) -> Option<Region> {
        let (region, doubled) = self.request_pages(alignment, rounded, least_bytes)?;
        if !doubled {
            self.next_region_bytes = self.next_region_bytes.saturating_mul(2);
        }
        Some(region)
    }

    /// Asks for whole pages; also says whether the size of regions was doubled for it.
    fn request_pages(
        &mut self,
        alignment: u64,
        wanted_bytes: u64,
        least_bytes: u64,
    ) -> Option<(Region, bool)> {
        let available = preallocated_bytes(self.limit_bytes.saturating_sub(self.pool_bytes));
        let least = whole_pages(least_bytes).filter(|least| *least <= available)?;
        let wanted = wanted_bytes.max(least_bytes).min(available);
        let before = self.next_region_bytes;
        while wanted > self.next_region_bytes {
            self.next_region_bytes = self.next_region_bytes.saturating_mul(2);
        }
        let most = self.next_region_bytes.min(available) / PAGE_BYTES * PAGE_BYTES;
        let mut bytes = most.max(least);
        let region = loop {
            if let Some(region) = self.device.allocate(alignment, bytes) {
                break region;
            }
            bytes = smaller_request(bytes, PAGE_BYTES);
            if bytes < least {
                return None;
            }
        };
        self.add_bytes(region.bytes);
        Some((region, self.next_region_bytes > before))
    }
}
