//! The partitioned pool of JAX 0.11: one preallocated pool, filled from both ends.
//!
//! Default memory and collective memory share it, each from its own end, with one free gap between
//! them. The rules follow XLA's `bfc_allocator.cc` as it was in JAX 0.11 and 0.12;
//! `fixtures/bfc-spatial` holds recordings of both. Filled from the lower end only, it is still not
//! the classic pool of [`super::bfc`]: holes come before the gap, however well the gap would fit.
//!
//! Where XLA would abort the process or never return, requests get [`AllocError::Fatal`] and frees an
//! error, from then on for ever.

use super::bfc::padding;
use super::bfc_options::BfcOptions;
use super::chunk_table::{ChunkHandle, ChunkSlot, ChunkTag};
use super::dump::{FreeChunks, dump};
use super::free_set::{Entry, FreeSet};
use super::live_set::LiveSet;
use super::log_record::LogRecord;
use super::pool::{BfcPool, round_request};
use super::regions::SharedDeviceMemory;
use super::reserved_range::ReservedRange;
use super::spatial_policy::{PoolEnd, SpatialPolicy, SplitRule};
use super::{AllocError, AllocResult, Allocator, DeviceMemory, PoolSpace, Stats};
use crate::error::{Error, ErrorKind, Result};

/// Collective memory is aligned to what one multicast object can bind: 2 MiB on NVIDIA GPUs.
const COLLECTIVE_ALIGNMENT: u64 = 2 << 20;

/// One partitioned pool.
#[derive(Debug)]
pub struct Spatial {
    pub(super) pool: BfcPool,
    policy: SpatialPolicy,
    lower: FreeSet,
    upper: FreeSet,
    gap: Option<ChunkHandle>,
    /// Where the first region ended when it was taken: collective memory stays below, however far the pool is
    /// extended. `None` in pools that are never extended.
    pub(super) lower_end_limit: Option<u64>,
    /// What killed the process, if anything did.
    fatal: Option<String>,
}

impl Spatial {
    /// Creates a pool that takes nothing from the GPU before the first request.
    pub fn new(options: BfcOptions, policy: SpatialPolicy, memory: Box<dyn DeviceMemory>) -> Self {
        Spatial::on_device(options, policy, SharedDeviceMemory::new(memory))
    }

    pub(super) fn on_device(
        mut options: BfcOptions,
        policy: SpatialPolicy,
        device: SharedDeviceMemory,
    ) -> Self {
        // XLA insists on one range: taken at once, or reserved and backed as it is needed.
        options.grows = options.start_bytes.is_some();
        let device = match options.start_bytes {
            Some(_) => {
                let range = ReservedRange::new(device, options.limit_bytes);
                SharedDeviceMemory::new(Box::new(range))
            }
            None => device,
        };
        Spatial {
            pool: BfcPool::new(device, options),
            policy,
            lower: FreeSet::new(),
            upper: FreeSet::new(),
            gap: None,
            lower_end_limit: None,
            fatal: None,
        }
    }

    /// Allocates from the given end; [`Allocator::allocate`] chooses the end by memory space.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    pub fn allocate_at(&mut self, end: PoolEnd, bytes: u64, alignment: u64) -> AllocResult<u64> {
        if let Some(text) = &self.fatal {
            return Err(AllocError::Fatal(text.clone()));
        }
        let result = self.find_or_grow(end, bytes, alignment);
        if let Err(AllocError::Fatal(text)) = &result {
            self.fatal = Some(text.clone());
        }
        result
    }

    /// Returns what goes to the log when a request at this end fails for good.
    pub fn out_of_memory_log_at(&self, end: PoolEnd, bytes: u64) -> Vec<LogRecord> {
        let mut binned: Vec<(u64, ChunkTag, Entry)> = Vec::new();
        // 0.11 orders equal sizes by address alone, later versions by end and then address.
        let by_tag = self.policy != SpatialPolicy::JAX_0_11;
        for (tag, set) in [(ChunkTag::Lower, &self.lower), (ChunkTag::Upper, &self.upper)] {
            let tag = if by_tag { tag } else { ChunkTag::Lower };
            binned.extend(set.iter().map(|entry| (entry.size(), tag, entry)));
        }
        binned.sort();
        let free = FreeChunks {
            end,
            binned: binned.into_iter().map(|(_, _, entry)| entry.handle()).collect(),
            gap: self.gap,
        };
        dump(&self.pool, &free, bytes)
    }

    fn end_of(&self, space: PoolSpace) -> PoolEnd {
        match (space, self.policy.default_end) {
            (PoolSpace::Default, end) => end,
            (PoolSpace::Collective, PoolEnd::Lower) => PoolEnd::Upper,
            (PoolSpace::Collective, PoolEnd::Upper) => PoolEnd::Lower,
        }
    }

    fn find_or_grow(&mut self, end: PoolEnd, bytes: u64, alignment: u64) -> AllocResult<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let (rounded, alignment) = round_request(bytes, alignment)?;
        if let Some(start_bytes) = self.pool.options.start_bytes
            && self.pool.regions.list.is_empty()
        {
            self.take_start(alignment, start_bytes)?;
        }
        let found = match self.take(end, rounded, alignment) {
            Some(found) => found,
            None => {
                self.grow(end, rounded, alignment)?;
                let found = self.take(end, rounded, alignment);
                found.ok_or(AllocError::OutOfMemory)?
            }
        };
        self.place(end, found, rounded, bytes, alignment)
    }

    /// Takes more memory from the GPU for a request that fits nowhere.
    fn grow(&mut self, end: PoolEnd, rounded: u64, alignment: u64) -> AllocResult<()> {
        if self.pool.options.start_bytes.is_some() {
            return self.extend(end, rounded, alignment);
        }
        if self.policy.single_region && !self.pool.regions.list.is_empty() {
            return Err(AllocError::OutOfMemory);
        }
        // A second region can only be had when the GPU refused the whole pool at first.
        let handle = self.pool.grow(rounded, alignment, ChunkTag::Gap)?;
        self.coalesce(handle.ok_or(AllocError::OutOfMemory)?)
    }

    /// Takes the free chunk for a request: the smallest own hole that fits, else the gap.
    fn take(&mut self, end: PoolEnd, rounded: u64, alignment: u64) -> Option<ChunkHandle> {
        let chunks = &self.pool.chunks;
        let lower_end_limit = self.lower_end_limit.unwrap_or(u64::MAX);
        let fits = |handle: ChunkHandle| {
            let ChunkSlot { address, size, .. } = chunks[handle];
            match end {
                PoolEnd::Lower => {
                    size.min(lower_end_limit.saturating_sub(address))
                        .checked_sub(padding(address, alignment))
                        >= Some(rounded)
                }
                PoolEnd::Upper => upper_start(address, size, rounded, alignment).is_some(),
            }
        };
        let own = match end {
            PoolEnd::Lower => &mut self.lower,
            PoolEnd::Upper => &mut self.upper,
        };
        let hole = own.take_first_fit(rounded, |entry| fits(entry.handle()));
        hole.map(Entry::handle).or_else(|| self.gap.take_if(|gap| fits(*gap)))
    }

    /// Gives a request its place in a free chunk that has room for it and is in no set any more.
    fn place(
        &mut self,
        end: PoolEnd,
        handle: ChunkHandle,
        rounded: u64,
        bytes: u64,
        alignment: u64,
    ) -> AllocResult<u64> {
        let chosen = match end {
            PoolEnd::Lower => self.place_lower(handle, rounded, alignment)?,
            PoolEnd::Upper => self.place_upper(handle, rounded, alignment)?,
        };
        Ok(self.pool.commit(chosen, bytes))
    }

    fn place_lower(
        &mut self,
        mut handle: ChunkHandle,
        rounded: u64,
        alignment: u64,
    ) -> AllocResult<ChunkHandle> {
        let ChunkSlot { address, tag, .. } = self.pool.chunks[handle];
        let padding = padding(address, alignment);
        if padding > 0 {
            // What is skipped lies below the new chunk, so it is the lower end's even if it came
            // from the gap.
            let aligned = self.pool.chunks.split(handle, padding);
            self.pool.chunks[handle].tag = ChunkTag::Lower;
            self.insert(handle)?;
            handle = aligned;
        }
        self.split_rest(handle, rounded, self.policy.lower.rule_for(tag))?;
        self.pool.chunks[handle].tag = ChunkTag::Lower;
        Ok(handle)
    }

    fn place_upper(
        &mut self,
        mut handle: ChunkHandle,
        rounded: u64,
        alignment: u64,
    ) -> AllocResult<ChunkHandle> {
        let ChunkSlot { address, size, tag, .. } = self.pool.chunks[handle];
        let rule = self.policy.upper.rule_for(tag);
        let padding = padding(address, alignment);
        // What is not worth splitting is taken whole, from its first aligned address on.
        let taken_whole = rule == SplitRule::Heuristic
            && size.checked_sub(padding).is_some_and(|rest| !self.pool.should_split(rest, rounded));
        let start = if taken_whole {
            address + padding
        } else {
            upper_start(address, size, rounded, alignment)
                .expect("the chunk was chosen because the request fits it")
        };
        if start > address {
            let aligned = self.pool.chunks.split(handle, start - address);
            self.insert(handle)?;
            handle = aligned;
        }
        // What lies above the request is the upper end's even if it came from the gap.
        self.pool.chunks[handle].tag = ChunkTag::Upper;
        self.split_rest(handle, rounded, rule)?;
        Ok(handle)
    }

    /// Cuts off what a chunk has beyond the request and keeps it free, if that is the rule.
    fn split_rest(
        &mut self,
        handle: ChunkHandle,
        rounded: u64,
        rule: SplitRule,
    ) -> AllocResult<()> {
        let size = self.pool.chunks[handle].size;
        let split = match rule {
            SplitRule::Exact => size > rounded,
            SplitRule::Heuristic => self.pool.should_split(size, rounded),
        };
        if split {
            let rest = self.pool.chunks.split(handle, rounded);
            self.insert(rest)?;
        }
        Ok(())
    }

    fn entry(&self, handle: ChunkHandle) -> Entry {
        let ChunkSlot { address, size, tag, .. } = self.pool.chunks[handle];
        let policy = if tag == ChunkTag::Upper { self.policy.upper } else { self.policy.lower };
        let key = if policy.high_addresses_first { !address } else { address };
        Entry::new(size, key, handle)
    }

    /// Enters a free chunk where its tag says.
    fn insert(&mut self, handle: ChunkHandle) -> AllocResult<()> {
        let entry = self.entry(handle);
        match self.pool.chunks[handle].tag {
            ChunkTag::Lower => self.lower.insert(entry),
            ChunkTag::Upper => self.upper.insert(entry),
            ChunkTag::Gap if self.gap.is_none() => self.gap = Some(handle),
            ChunkTag::Gap => {
                return Err(AllocError::Fatal(
                    "XLA aborts the process here: Check failed: central_gap_ == \
                     kInvalidChunkHandle: spatial partitioning expects one central gap; the GPU \
                     denied the whole pool at first and granted a second region later"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    fn remove(&mut self, handle: ChunkHandle) {
        let entry = self.entry(handle);
        let found = match self.pool.chunks[handle].tag {
            ChunkTag::Lower => self.lower.remove(entry),
            ChunkTag::Upper => self.upper.remove(entry),
            ChunkTag::Gap => self.gap.take() == Some(handle),
        };
        debug_assert!(found, "a free chunk is always where its tag says");
    }

    /// Joins a free chunk with free neighbors and enters the result.
    pub(super) fn coalesce(&mut self, handle: ChunkHandle) -> AllocResult<()> {
        let ChunkSlot { next, prev, .. } = self.pool.chunks[handle];
        let mut joined = handle;
        if next != ChunkHandle::NONE && !self.pool.chunks[next].in_use {
            self.remove(next);
            self.pool.chunks.merge_next(handle);
        }
        if prev != ChunkHandle::NONE && !self.pool.chunks[prev].in_use {
            self.remove(prev);
            self.pool.chunks.merge_next(prev);
            joined = prev;
        }
        self.insert(joined)
    }

    /// A freed chunk at the border of its end becomes gap; others stay with their end.
    fn return_to_gap(&mut self, handle: ChunkHandle) {
        let ChunkSlot { tag, next, prev, .. } = self.pool.chunks[handle];
        let inner = match tag {
            ChunkTag::Lower => next,
            _ => prev,
        };
        if inner == ChunkHandle::NONE || self.pool.chunks[inner].tag != tag {
            self.pool.chunks[handle].tag = ChunkTag::Gap;
        }
    }
}

/// Returns the highest aligned address at which a request fits the end of a chunk.
fn upper_start(address: u64, size: u64, rounded: u64, alignment: u64) -> Option<u64> {
    let start = (address + size.checked_sub(rounded)?) & !(alignment - 1);
    (start >= address).then_some(start)
}

impl Allocator for Spatial {
    fn live_set(&self) -> &dyn LiveSet {
        &self.pool
    }

    fn live_set_mut(&mut self) -> &mut dyn LiveSet {
        &mut self.pool
    }

    fn default_end(&self) -> PoolEnd {
        self.policy.default_end
    }

    fn allocate(&mut self, bytes: u64, alignment: u64, space: PoolSpace) -> AllocResult<u64> {
        let alignment = match space {
            PoolSpace::Default => alignment,
            PoolSpace::Collective => alignment.max(COLLECTIVE_ALIGNMENT),
        };
        self.allocate_at(self.end_of(space), bytes, alignment)
    }

    fn free(&mut self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let handle = self.pool.release(address)?;
        self.return_to_gap(handle);
        if self.fatal.is_none()
            && let Err(AllocError::Fatal(text)) = self.coalesce(handle)
        {
            self.fatal = Some(text);
        }
        match &self.fatal {
            None => Ok(()),
            Some(text) => Err(Error::new(
                ErrorKind::AllocatorAborts,
                format!("freeing a buffer of `{}` would abort the process", self.name()),
            )
            .cause(text)
            .hint(
                "set `XLA_FLAGS=--xla_gpu_enable_allocator_spatial_partitioning=false`, or take a \
                 smaller `XLA_CLIENT_MEM_FRACTION`",
            )),
        }
    }

    fn obtainable_bytes(&self, gpu_bytes: u64) -> u64 {
        match self.policy.single_region && !self.pool.regions.list.is_empty() {
            true if self.pool.options.start_bytes.is_none() => 0,
            _ => self.pool.obtainable_bytes(gpu_bytes),
        }
    }

    fn stats(&self) -> Stats {
        let gap = self.gap.map(|gap| self.pool.chunks[gap].size);
        let largest = self.lower.largest().max(self.upper.largest()).max(gap);
        self.pool.stats(largest.unwrap_or(0))
    }

    fn out_of_memory_log(&self, bytes: u64, space: PoolSpace) -> Vec<LogRecord> {
        self.out_of_memory_log_at(self.end_of(space), bytes)
    }
}
