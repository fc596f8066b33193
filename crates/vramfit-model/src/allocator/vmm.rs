//! The allocator `vmm` of JAX 0.10: CUDA's virtual-memory functions under a budget.
//!
//! Follows `device_address_vmm_allocator.cc` of openxla/xla. Each buffer takes whole pages of its own,
//! so there is no fragmentation, only rounding. A freed buffer waits for the stream before its pages
//! return; the model takes it to wait until someone needs them.

use std::collections::VecDeque;

use super::config::{JaxVersion, PoolOptions};
use super::device_memory::{PAGE_BYTES, free_page_bytes, whole_pages};
use super::live_allocations::LiveAllocations;
use super::live_set::LiveSet;
use super::message::{NO_PAGES_TEXT, over_budget_text};
use super::regions::SharedDeviceMemory;
use super::{AllocError, AllocResult, Allocator, DeviceMemory, Fidelity, PoolSpace, Region, Stats};
use crate::error::Result;

const FIDELITY: Fidelity = Fidelity::Model(
    "when freed pages return, and where buffers lie, depends on the stream; the budget and \
     the rounding to 2 MiB follow XLA",
);

/// The allocator of one GPU.
#[derive(Debug)]
pub(super) struct Vmm {
    budget: u64,
    jax_version: JaxVersion,
    device: SharedDeviceMemory,
    /// Pages of live and of waiting buffers.
    mapped_bytes: u64,
    /// Freed buffers whose pages have not returned, oldest first.
    waiting: VecDeque<Region>,
    allocations: LiveAllocations,
}

impl Vmm {
    pub(super) fn new(options: &PoolOptions, device: SharedDeviceMemory) -> Self {
        Vmm {
            budget: options.limit_bytes(),
            jax_version: options.jax_version,
            device,
            mapped_bytes: 0,
            waiting: VecDeque::new(),
            allocations: LiveAllocations::new(
                format!("GPU_{}_vmm", options.ordinal),
                options.jax_version,
                FIDELITY,
            )
            // XLA reports no statistics; what the budget limits are pages.
            .with_cost_in_stats(),
        }
    }

    fn map(&mut self, pages: u64) -> Option<Region> {
        if self.mapped_bytes.saturating_add(pages) > self.budget {
            return None;
        }
        let region = self.device.allocate(PAGE_BYTES, pages)?;
        self.mapped_bytes += pages;
        Some(region)
    }

    /// Waits for freed buffers, oldest first, until a tenth more than `pages` has returned.
    fn wait_for(&mut self, pages: u64) {
        let wanted = pages.saturating_add(pages / 10);
        let mut returned = 0;
        while returned < wanted
            && let Some(region) = self.waiting.pop_front()
        {
            returned += region.bytes;
            self.mapped_bytes -= region.bytes;
            self.device.free(region);
        }
    }
}

impl Allocator for Vmm {
    fn live_set(&self) -> &dyn LiveSet {
        &self.allocations
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        &mut self.allocations
    }

    fn allocate(&mut self, bytes: u64, _alignment: u64, _space: PoolSpace) -> AllocResult<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let pages = whole_pages(bytes).ok_or(AllocError::OutOfMemory)?;
        let same = self.waiting.iter().position(|region| region.bytes == pages);
        let region = same
            .and_then(|index| self.waiting.remove(index))
            .or_else(|| self.map(pages))
            .or_else(|| {
                self.wait_for(pages);
                self.map(pages)
            })
            .ok_or(AllocError::OutOfMemory)?;
        self.allocations.insert(region.address, bytes, region.bytes);
        Ok(region.address)
    }

    fn free(&mut self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let bytes = self.allocations.remove(address)?;
        self.waiting.push_back(Region { address, bytes });
        Ok(())
    }

    fn stats(&self) -> Stats {
        self.allocations.stats(Some(self.budget))
    }

    fn obtainable_bytes(&self, gpu_bytes: u64) -> u64 {
        // Pages of freed buffers return when they are needed.
        let waiting: u64 = self.waiting.iter().map(|region| region.bytes).sum();
        free_page_bytes(gpu_bytes.min(self.budget), self.mapped_bytes - waiting)
    }

    fn reports_stats(&self) -> bool {
        false
    }

    fn out_of_memory_message(&self, bytes: u64) -> String {
        let pages = whole_pages(bytes).unwrap_or(u64::MAX);
        if self.mapped_bytes.saturating_add(pages) > self.budget {
            over_budget_text(self.mapped_bytes, pages, self.budget, self.jax_version)
        } else {
            NO_PAGES_TEXT.to_owned()
        }
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        let live = self.allocations.drain();
        let live = live.map(|(address, bytes)| Region { address, bytes });
        for region in self.waiting.drain(..).chain(live) {
            self.device.free(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimulatedDeviceMemory;
    use super::super::testing::take;
    use super::*;

    fn vmm(budget_pages: u64, gpu_pages: u64) -> Vmm {
        let options = PoolOptions {
            total_memory_bytes: budget_pages * PAGE_BYTES,
            memory_fraction: 1.0,
            ..PoolOptions::default()
        };
        Vmm::new(
            &options,
            SharedDeviceMemory::new(Box::new(SimulatedDeviceMemory::new(gpu_pages * PAGE_BYTES))),
        )
    }

    #[test]
    fn every_buffer_takes_whole_pages() {
        let mut vmm = vmm(3, 100);
        for _ in 0..3 {
            take(&mut vmm, 1);
        }
        assert_eq!(vmm.allocate(1, 64, PoolSpace::Default), Err(AllocError::OutOfMemory));
        assert_eq!(
            vmm.out_of_memory_message(1),
            "Not enough PA budget for allocation: pa_allocated=6291456B, rounded_size=2097152B, \
             pa_budget=6291456B"
        );
        assert_eq!(vmm.stats().bytes_in_use, 3 * PAGE_BYTES);
        vmm.jax_version = (0, 11, 0);
        assert_eq!(
            vmm.out_of_memory_message(1),
            "Not enough PA budget: pa_allocated=6291456B, allocation_size=2097152B, \
             pa_budget=6291456B"
        );
    }

    #[test]
    fn the_gpu_can_refuse_what_the_budget_allows() {
        let mut vmm = vmm(3, 1);
        take(&mut vmm, 1);
        assert!(vmm.allocate(1, 64, PoolSpace::Default).is_err());
        assert_eq!(vmm.out_of_memory_message(1), ": CUDA_ERROR_OUT_OF_MEMORY: out of memory");
    }

    #[test]
    fn a_waiting_buffer_of_the_same_size_is_used_again() {
        let mut vmm = vmm(4, 100);
        let first = take(&mut vmm, PAGE_BYTES);
        vmm.free(first).expect("it was allocated");
        assert_eq!(take(&mut vmm, 1), first);
    }

    #[test]
    fn waiting_pages_return_when_they_are_needed() {
        let mut vmm = vmm(4, 100);
        let pieces = [(); 4].map(|()| take(&mut vmm, 1));
        for address in &pieces[..3] {
            vmm.free(*address).expect("it was allocated");
        }
        // Three pages were waiting.
        take(&mut vmm, 3 * PAGE_BYTES);
        assert!(vmm.allocate(1, 64, PoolSpace::Default).is_err());
    }
}
