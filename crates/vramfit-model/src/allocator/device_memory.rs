//! The memory of one GPU, for allocators of this process.
//!
//! A GPU that several processes share is made elsewhere, behind the same [`DeviceMemory`].

use std::collections::BTreeMap;

use super::{DeviceMemory, Region};

/// The driver maps memory in pages of this size, and hands out address ranges aligned to it.
pub const PAGE_BYTES: u64 = 2 << 20;

/// A GPU with a given number of free bytes.
///
/// What is handed out is what was asked for; what it costs is that rounded up to whole 2 MiB pages,
/// as on a real GPU. Fresh addresses rise with at least one page between neighbors, so that no two
/// regions are adjacent; given-back ranges are used again, lowest first.
#[derive(Debug)]
pub struct SimulatedDeviceMemory {
    free_bytes: u64,
    next_address: u64,
    /// Given-back ranges by address, each with the page after it that keeps neighbors apart.
    returned: BTreeMap<u64, u64>,
}

/// Where CUDA puts device memory on 64-bit Linux, so that addresses look familiar.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// Where CUDA puts memory that it maps itself (stream-ordered pools, virtual memory).
const FIRST_MAPPED_ADDRESS: u64 = 0x3_0200_0000;

impl SimulatedDeviceMemory {
    /// Creates a GPU with `free_bytes` free: its total less the CUDA context and whatever else
    /// holds memory.
    pub fn new(free_bytes: u64) -> Self {
        SimulatedDeviceMemory { free_bytes, next_address: FIRST_ADDRESS, returned: BTreeMap::new() }
    }

    /// Creates a space of addresses with no memory behind it, for allocators that map pages.
    pub(super) fn address_space() -> Self {
        SimulatedDeviceMemory {
            free_bytes: FIRST_ADDRESS - FIRST_MAPPED_ADDRESS,
            next_address: FIRST_MAPPED_ADDRESS,
            returned: BTreeMap::new(),
        }
    }
}

/// Rounds up to whole pages; `None` beyond 64 bits.
pub(super) fn whole_pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAGE_BYTES)
}

/// Returns the bytes that can still be obtained in one piece of a GPU of which `gpu_bytes` may be used and
/// `used_pages` bytes are: whole pages.
pub(super) fn free_page_bytes(gpu_bytes: u64, used_pages: u64) -> u64 {
    gpu_bytes.saturating_sub(used_pages) / PAGE_BYTES * PAGE_BYTES
}

/// Returns the bytes of the pages that regions take.
pub(super) fn region_page_bytes(regions: &[Region]) -> u64 {
    let pages = regions.iter().filter_map(|region| whole_pages(region.bytes));
    pages.sum()
}

/// Adds a range to others by address, joined with those next to it, and returns its size then.
pub(super) fn insert_range(ranges: &mut BTreeMap<u64, u64>, begin: u64, size: u64) -> u64 {
    let (mut begin, mut size) = (begin, size);
    if let Some(after) = ranges.remove(&(begin + size)) {
        size += after;
    }
    if let Some((&before, &length)) = ranges.range(..begin).next_back()
        && before + length == begin
    {
        begin = before;
        size += length;
    }
    ranges.insert(begin, size);
    size
}

impl DeviceMemory for SimulatedDeviceMemory {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let cost = whole_pages(bytes)?;
        if bytes == 0 || cost > self.free_bytes {
            return None;
        }
        let alignment = alignment.max(PAGE_BYTES).checked_next_power_of_two()?;
        let width = cost.checked_add(PAGE_BYTES)?;
        let reused = self.returned.iter().find_map(|(&begin, &size)| {
            let address = begin.checked_next_multiple_of(alignment)?;
            let end = address.checked_add(width)?;
            (end <= begin + size).then_some((begin, size, address))
        });
        let address = if let Some((begin, size, address)) = reused {
            self.returned.remove(&begin);
            if address > begin {
                self.returned.insert(begin, address - begin);
            }
            if address + width < begin + size {
                self.returned.insert(address + width, begin + size - address - width);
            }
            address
        } else {
            let address = self.next_address.checked_next_multiple_of(alignment)?;
            self.next_address = address.checked_add(width)?;
            address
        };
        self.free_bytes -= cost;
        Some(Region { address, bytes })
    }

    fn free(&mut self, region: Region) {
        let Some(cost) = whole_pages(region.bytes) else {
            return;
        };
        self.free_bytes += cost;
        insert_range(&mut self.returned, region.address, cost + PAGE_BYTES);
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_cost_whole_pages_and_are_never_adjacent() {
        let mut device = SimulatedDeviceMemory::new(10 * PAGE_BYTES);
        let first = device.allocate(256, PAGE_BYTES + 1).expect("there is room");
        let second = device.allocate(256, PAGE_BYTES).expect("there is room");
        assert_eq!(first.bytes, PAGE_BYTES + 1);
        assert_eq!(device.free_bytes(), 7 * PAGE_BYTES);
        assert!(second.address > first.address + 2 * PAGE_BYTES);
        assert_eq!(device.allocate(256, 7 * PAGE_BYTES + 1), None);
        assert_eq!(device.free_bytes(), 7 * PAGE_BYTES, "a refusal changes nothing");
    }

    #[test]
    fn a_returned_range_is_used_again() {
        let mut device = SimulatedDeviceMemory::new(1 << 40);
        let first = device.allocate(256, 8 * PAGE_BYTES).expect("there is room");
        device.free(first);
        assert_eq!(device.free_bytes(), 1 << 40);
        let low = device.allocate(256, 3 * PAGE_BYTES).expect("there is room");
        let high = device.allocate(256, 4 * PAGE_BYTES).expect("there is room");
        assert_eq!(low.address, first.address);
        assert_eq!(high.address, first.address + 4 * PAGE_BYTES);
        assert!(device.allocate(256, 1).expect("there is room").address > high.address);
    }
}
