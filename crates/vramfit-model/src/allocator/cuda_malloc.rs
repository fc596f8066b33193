//! How the CUDA driver serves single allocations: a model.
//!
//! Large requests get pages of 2 MiB of their own; small ones share pages. Where exactly the driver
//! puts something is not documented and not claimed here; what matters for fitting is the cost.

use std::collections::BTreeMap;

use super::device_memory::{PAGE_BYTES, insert_range, whole_pages};
use super::{DeviceMemory, Region};

/// Requests up to this size share pages.
const SMALL_BYTES: u64 = 1 << 20;
/// Small requests are rounded up to this.
const SMALL_UNIT: u64 = 512;

/// Hands out single allocations over some memory.
#[derive(Debug)]
pub(super) struct CudaMalloc<M> {
    pub(super) memory: M,
    /// Free stretches of shared pages, by page and then by address.
    shared: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Whole pages that belong to live requests, shared ones included.
    page_bytes: u64,
}

impl<M: DeviceMemory> CudaMalloc<M> {
    pub(super) fn new(memory: M) -> Self {
        CudaMalloc { memory, shared: BTreeMap::new(), page_bytes: 0 }
    }

    /// Returns the address and the bytes it takes.
    pub(super) fn allocate(&mut self, bytes: u64, alignment: u64) -> Option<(u64, u64)> {
        if bytes > SMALL_BYTES || alignment > SMALL_UNIT {
            let cost = whole_pages(bytes)?;
            let region = self.memory.allocate(alignment, bytes)?;
            self.page_bytes += cost;
            return Some((region.address, cost));
        }
        let cost = bytes.next_multiple_of(SMALL_UNIT);
        let found = self.shared.iter().find_map(|(&page, free)| {
            let (&address, &size) = free.iter().find(|&(_, &size)| size >= cost)?;
            Some((page, address, size))
        });
        let (page, address, size) = match found {
            Some(found) => found,
            None => {
                let page = self.memory.allocate(PAGE_BYTES, PAGE_BYTES)?.address;
                self.page_bytes += PAGE_BYTES;
                (page, page, PAGE_BYTES)
            }
        };
        let free = self.shared.entry(page).or_default();
        free.remove(&address);
        if size > cost {
            free.insert(address + cost, size - cost);
        }
        Some((address, cost))
    }

    /// Returns the bytes of the pages that live requests take.
    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Takes back what [`CudaMalloc::allocate`] gave, with the bytes it took.
    pub(super) fn free(&mut self, address: u64, cost: u64) {
        let page = address / PAGE_BYTES * PAGE_BYTES;
        let Some(free) = self.shared.get_mut(&page) else {
            self.page_bytes -= cost;
            self.memory.free(Region { address, bytes: cost });
            return;
        };
        if insert_range(free, address, cost) == PAGE_BYTES {
            self.shared.remove(&page);
            self.page_bytes -= PAGE_BYTES;
            self.memory.free(Region { address: page, bytes: PAGE_BYTES });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimulatedDeviceMemory;
    use super::*;

    #[test]
    fn small_requests_share_a_page_and_give_it_back() {
        let mut heap = CudaMalloc::new(SimulatedDeviceMemory::new(2 * PAGE_BYTES));
        let pieces: Vec<_> =
            (0..8).map(|_| heap.allocate(300_000, 256).expect("there is room")).collect();
        assert_eq!(heap.memory.free_bytes(), 0, "seven fit one page, the eighth needs another");
        for (address, cost) in pieces {
            heap.free(address, cost);
        }
        assert_eq!(heap.memory.free_bytes(), 2 * PAGE_BYTES);
        let (_, cost) = heap.allocate(PAGE_BYTES + 1, 256).expect("both pages are free again");
        assert_eq!(cost, 2 * PAGE_BYTES);
    }
}
