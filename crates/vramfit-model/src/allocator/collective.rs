//! A GPU's default allocator with the separate pool for collective memory beside it.
//!
//! XLA makes that pool whenever the default pool is not partitioned. Both draw on the same GPU. JAX
//! shows the statistics of the default one only.

use super::bfc::Bfc;
use super::device_memory::region_page_bytes;
use super::live_set::LiveSet;
use super::log_record::LogRecord;
use super::{AllocResult, Allocator, Chunk, PoolSpace, Stats};
use crate::error::Result;

/// Two allocators that share a GPU.
pub(super) struct SplitCollectivePool {
    pub(super) default: Box<dyn Allocator>,
    pub(super) collective: Bfc,
}

impl Allocator for SplitCollectivePool {
    fn live_set(&self) -> &dyn LiveSet {
        self.default.live_set()
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        self.default.live_set_mut()
    }

    fn allocate(&mut self, bytes: u64, alignment: u64, space: PoolSpace) -> AllocResult<u64> {
        match space {
            PoolSpace::Default => self.default.allocate(bytes, alignment, space),
            PoolSpace::Collective => self.collective.allocate(bytes, alignment, space),
        }
    }

    fn free(&mut self, address: u64) -> Result<()> {
        // Programs without collectives never fill that pool, so the question is nearly free.
        if self.collective.contains_address(address) {
            self.collective.free(address)
        } else {
            self.default.free(address)
        }
    }

    fn stats(&self) -> Stats {
        self.default.stats()
    }

    fn largest_free_block(&self) -> Option<u64> {
        self.default.largest_free_block()
    }

    fn obtainable_bytes(&self, gpu_bytes: u64) -> u64 {
        let collective = region_page_bytes(&self.collective.regions());
        self.default.obtainable_bytes(gpu_bytes.saturating_sub(collective))
    }

    fn chunks(&self) -> Vec<Chunk> {
        let mut chunks = self.default.chunks();
        chunks.extend(self.collective.chunks());
        chunks.sort_by_key(|chunk| chunk.address);
        chunks
    }

    fn out_of_memory_log(&self, bytes: u64, space: PoolSpace) -> Vec<LogRecord> {
        match space {
            PoolSpace::Default => self.default.out_of_memory_log(bytes, space),
            PoolSpace::Collective => self.collective.out_of_memory_log(bytes, space),
        }
    }

    fn set_label(&mut self, text: Option<&str>) {
        self.default.set_label(text);
        self.collective.set_label(text);
    }
}
