//! How a pool takes memory from the GPU: when, how much, and what it does when refused.
//!
//! Follows `Extend` in XLA's `bfc_allocator.cc`, including the 32-bit arithmetic of the 10 % steps.
//! What is done with a region once it is there is the business of the pool.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bfc_options::{Backpedal, BfcOptions};
use super::chunk_table::ChunkHandle;
use super::free_set::Entry;
use super::preallocation::preallocated_bytes;
use super::units::UNIT;
use super::{AllocError, AllocResult, DeviceMemory, Region, round_up};

/// The GPU, as several pools of one device share it.
#[derive(Clone)]
pub struct SharedDeviceMemory(Arc<Mutex<Box<dyn DeviceMemory>>>);

impl SharedDeviceMemory {
    /// Wraps the memory of a device so that several pools can draw on it.
    pub fn new(memory: Box<dyn DeviceMemory>) -> Self {
        SharedDeviceMemory(Arc::new(Mutex::new(memory)))
    }

    /// Gives access to the memory for one call.
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn DeviceMemory>> {
        // A panic in another pool leaves the GPU's books as they were after its last whole
        // operation, so they are still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for SharedDeviceMemory {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        self.lock().allocate(alignment, bytes)
    }

    fn free(&mut self, region: Region) {
        self.lock().free(region);
    }

    fn free_bytes(&self) -> u64 {
        self.lock().free_bytes()
    }

    fn merges_regions(&self) -> bool {
        self.lock().merges_regions()
    }
}

impl std::fmt::Debug for SharedDeviceMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedDeviceMemory")
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PoolRegion {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The first chunk. It keeps its slot for the life of the region: a chunk is merged into the
    /// one before it, never the other way round.
    pub(super) first: ChunkHandle,
}

/// The regions of a pool and the rule by which it grows.
#[derive(Debug)]
pub(super) struct Regions {
    pub(super) device: SharedDeviceMemory,
    merges: bool,
    /// In address order.
    pub(super) list: Vec<PoolRegion>,
    pub(super) limit_bytes: u64,
    pub(super) pool_bytes: u64,
    pub(super) peak_pool_bytes: u64,
    /// What the pool would ask for next; doubled as it grows.
    pub(super) next_region_bytes: u64,
    backpedal: Backpedal,
}

/// The part of the limit that a growing pool asks for first.
pub(super) const FIRST_REGION_BYTES: u64 = 2 << 20;
/// Each refusal makes the next request this much smaller. A 32-bit float, as in XLA: the products
/// are rounded to 24 bits, which shows in region sizes above 16 MiB.
const BACKPEDAL_FACTOR: f32 = 0.9;

/// Returns what a refused request becomes before it is rounded.
fn tenth_smaller(bytes: u64) -> u64 {
    (bytes as f32 * BACKPEDAL_FACTOR) as u64
}

/// Returns what a refused request becomes from JAX 0.12 on: whole units, and at least one fewer.
pub(super) fn smaller_request(bytes: u64, unit: u64) -> u64 {
    let less = tenth_smaller(bytes) / unit * unit;
    less.min(bytes.saturating_sub(unit))
}

impl Regions {
    /// Prepares a pool that has nothing yet.
    pub(super) fn new(device: SharedDeviceMemory, options: &BfcOptions) -> Self {
        let limit_bytes = options.limit_bytes;
        let first = if options.grows { limit_bytes.min(FIRST_REGION_BYTES) } else { limit_bytes };
        let merges = device.lock().merges_regions();
        Regions {
            device,
            merges,
            list: Vec::new(),
            limit_bytes,
            pool_bytes: 0,
            peak_pool_bytes: 0,
            next_region_bytes: round_up(first).unwrap_or(u64::MAX),
            backpedal: options.backpedal,
        }
    }

    /// Asks the GPU for a region that holds at least `rounded` bytes.
    ///
    /// `Ok(None)` when the limit or the GPU does not allow it.
    pub(super) fn grow(&mut self, alignment: u64, rounded: u64) -> AllocResult<Option<Region>> {
        // A GPU may grant more than was asked for, so a pool can exceed its limit. XLA subtracts
        // without a sign; the available bytes then seem huge.
        let available = preallocated_bytes(self.limit_bytes.wrapping_sub(self.pool_bytes));
        if rounded > available {
            return Ok(None);
        }
        let mut doubled = false;
        while rounded > self.next_region_bytes {
            let Some(twice) = self.next_region_bytes.checked_mul(2).filter(|&n| n > 0) else {
                return Err(AllocError::Fatal(
                    "XLA never returns from this request: its region size overflows".to_owned(),
                ));
            };
            self.next_region_bytes = twice;
            doubled = true;
        }
        let Some(region) =
            self.request_region(alignment, self.next_region_bytes.min(available), rounded)?
        else {
            return Ok(None);
        };
        if !doubled {
            self.next_region_bytes = self.next_region_bytes.wrapping_mul(2);
        }
        self.add_bytes(region.bytes);
        Ok(Some(region))
    }

    /// Counts memory that the GPU granted.
    pub(super) fn add_bytes(&mut self, bytes: u64) {
        self.pool_bytes += bytes;
        self.peak_pool_bytes = self.peak_pool_bytes.max(self.pool_bytes);
    }

    /// Asks for `bytes`, then for less and less, but never for less than `rounded`.
    fn request_region(
        &self,
        alignment: u64,
        mut bytes: u64,
        rounded: u64,
    ) -> AllocResult<Option<Region>> {
        let mut device = self.device.lock();
        loop {
            // No GPU has more than a chunk can describe.
            if bytes <= Entry::MAX_SIZE
                && let Some(region) = device.allocate(alignment, bytes)
            {
                return Ok(Some(region));
            }
            bytes = self.smaller_region(bytes).ok_or_else(|| {
                AllocError::Fatal(format!(
                    "XLA of this version never returns from this request: the GPU denies {bytes} \
                     bytes, and the next smaller region it tries is as large"
                ))
            })?;
            if bytes < rounded {
                return Ok(None);
            }
        }
    }

    /// Returns what the pool asks for after the GPU refused `bytes`; `None` where XLA asks for the same
    /// for ever.
    fn smaller_region(&self, bytes: u64) -> Option<u64> {
        if self.backpedal == Backpedal::Down {
            return Some(smaller_request(bytes, UNIT));
        }
        let less = round_up(tenth_smaller(bytes)).unwrap_or(u64::MAX);
        // Small sizes round back up to themselves.
        (less < bytes || self.backpedal != Backpedal::UpForEver).then(|| less.min(bytes - UNIT))
    }

    /// Returns the largest request for which the pool could grow if the GPU had `free_bytes`: less than
    /// that where the sizes that XLA asks for one after the other pass it over.
    pub(super) fn obtainable_bytes(&self, free_bytes: u64) -> u64 {
        let available = preallocated_bytes(self.limit_bytes.saturating_sub(self.pool_bytes));
        let free_bytes = free_bytes.min(Entry::MAX_SIZE);
        let (mut largest, mut smaller) = (0, 0);
        let mut next = self.next_region_bytes;
        while next > 0 {
            let mut bytes = Some(next.min(available));
            while let Some(asked) = bytes.filter(|&asked| asked > free_bytes) {
                bytes = self.smaller_region(asked);
            }
            // Requests above `smaller` and up to `next` make the pool ask for `next` first.
            let request = bytes.unwrap_or(0).min(next);
            if request > smaller {
                largest = request;
            }
            if next >= available {
                break;
            }
            (smaller, next) = (next, next.saturating_mul(2));
        }
        largest
    }

    /// Finds the region that ends where `region` begins, if such regions are merged.
    pub(super) fn extendable(&mut self, region: Region) -> Option<&mut PoolRegion> {
        if !self.merges {
            return None;
        }
        let after = self.list.partition_point(|other| other.address <= region.address);
        let before = self.list.get_mut(after.checked_sub(1)?)?;
        (before.address + before.bytes == region.address).then_some(before)
    }

    /// Enters a new region.
    pub(super) fn insert_region(&mut self, region: Region, first: ChunkHandle) {
        let place = self.list.partition_point(|other| other.address <= region.address);
        let Region { address, bytes } = region;
        self.list.insert(place, PoolRegion { address, bytes, first });
    }

    /// Gives the region at `index` back to the GPU.
    pub(super) fn return_region(&mut self, index: usize) {
        let PoolRegion { address, bytes, .. } = self.list.remove(index);
        self.pool_bytes -= bytes;
        self.device.lock().free(Region { address, bytes });
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        for index in (0..self.list.len()).rev() {
            self.return_region(index);
        }
    }
}
