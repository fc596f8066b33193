//! One range of addresses for a whole pool, backed by memory from its beginning as the pool grows.
//!
//! Follows the reserving mode of `DeviceMemAllocator`
//! (`xla/stream_executor/integrations/device_mem_allocator.h`): the range is as large as the pool may become, what
//! is mapped never moves, and each new mapping begins where the last one ends. Only the mappings cost memory.

use super::device_memory::{PAGE_BYTES, whole_pages};
use super::regions::SharedDeviceMemory;
use super::{DeviceMemory, Region, SimulatedDeviceMemory};

/// A reserved range of addresses.
#[derive(Debug)]
pub(super) struct ReservedRange {
    device: SharedDeviceMemory,
    /// The first address; `None` where no range of that size can be had.
    begin: Option<u64>,
    capacity_bytes: u64,
    mapped_bytes: u64,
    /// What the device granted, in the order of the addresses it is mapped to.
    mappings: Vec<Region>,
}

impl ReservedRange {
    /// Reserves this many addresses, with no memory behind them.
    pub(super) fn new(device: SharedDeviceMemory, capacity_bytes: u64) -> Self {
        let range = SimulatedDeviceMemory::address_space().allocate(PAGE_BYTES, capacity_bytes);
        ReservedRange {
            device,
            begin: range.map(|range| range.address),
            capacity_bytes,
            mapped_bytes: 0,
            mappings: Vec::new(),
        }
    }
}

impl DeviceMemory for ReservedRange {
    fn allocate(&mut self, _alignment: u64, bytes: u64) -> Option<Region> {
        let whole = whole_pages(bytes)?;
        if whole == 0 || whole > self.capacity_bytes - self.mapped_bytes {
            return None;
        }
        let address = self.begin? + self.mapped_bytes;
        self.mappings.push(self.device.allocate(PAGE_BYTES, whole)?);
        self.mapped_bytes += whole;
        Some(Region { address, bytes: whole })
    }

    /// Gives back the last mappings: the pool frees its one region as a whole, however often it was extended.
    fn free(&mut self, region: Region) {
        let kept = self.mapped_bytes.saturating_sub(region.bytes);
        while self.mapped_bytes > kept
            && let Some(mapping) = self.mappings.pop()
        {
            self.mapped_bytes -= mapping.bytes;
            self.device.free(mapping);
        }
    }

    fn free_bytes(&self) -> u64 {
        self.device.free_bytes()
    }

    fn merges_regions(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_adjacent_and_come_back_together() {
        let free = 16 * PAGE_BYTES;
        let device = SharedDeviceMemory::new(Box::new(SimulatedDeviceMemory::new(free)));
        let mut range = ReservedRange::new(device, 10 * PAGE_BYTES);
        let first = range.allocate(256, 4 * PAGE_BYTES).expect("there is room");
        let second = range.allocate(256, 2 * PAGE_BYTES + 1).expect("there is room");
        assert_eq!(second.address, first.address + first.bytes);
        assert_eq!(second.bytes, 3 * PAGE_BYTES);
        assert_eq!(range.free_bytes(), 9 * PAGE_BYTES);
        assert_eq!(range.allocate(256, 4 * PAGE_BYTES), None, "beyond the range");
        range.free(Region { address: first.address, bytes: 7 * PAGE_BYTES });
        assert_eq!(range.free_bytes(), free);
    }
}
