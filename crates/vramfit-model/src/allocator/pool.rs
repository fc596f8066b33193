//! What the classic and the partitioned pool have in common: chunks, regions, statistics.
//!
//! Which free chunk a request gets is decided by [`super::bfc`] and [`super::spatial`].

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::address_map::AddressMap;
use super::bfc_options::BfcOptions;
use super::chunk_table::{ChunkHandle, ChunkSlot, ChunkTable, ChunkTag};
use super::config::JaxVersion;
use super::device_memory::{free_page_bytes, region_page_bytes};
use super::live_set::LiveSet;
use super::regions::{PoolRegion, Regions, SharedDeviceMemory};
use super::units::{UNIT, round_up};
use super::{AllocError, AllocResult, Chunk, Fidelity, Region, Stats};
use crate::error::{Error, ErrorKind, Result};

/// Bin `b` begins at `256 << b` bytes; the last one has no upper end.
pub(super) const BINS: usize = 21;

/// The newest release of JAX whose allocator the recordings are from.
const MAX_COMPARED_JAX: (u32, u32) = (0, 12);

/// Rounds a request up to what the pool hands out: its size, and its alignment to a power of two.
#[inline]
pub(super) fn round_request(bytes: u64, alignment: u64) -> AllocResult<(u64, u64)> {
    round_up(bytes)
        .zip(alignment.max(UNIT).checked_next_power_of_two())
        .ok_or(AllocError::OutOfMemory)
}

/// Returns XLA's bin of a size.
pub(super) fn bin_of(size: u64) -> usize {
    let units = (size / UNIT).max(1);
    (63 - units.leading_zeros() as usize).min(BINS - 1)
}

/// Chunks, regions and statistics of one pool.
#[derive(Debug)]
pub(super) struct BfcPool {
    pub(super) options: BfcOptions,
    pub(super) chunks: ChunkTable,
    pub(super) regions: Regions,
    in_use: AddressMap,
    labels: Labels,
    split_surplus: i64,
    usage: Stats,
}

impl BfcPool {
    pub(super) fn new(device: SharedDeviceMemory, options: BfcOptions) -> Self {
        let split_surplus = if options.fragmentation_fraction > 0.0 {
            (options.fragmentation_fraction * options.limit_bytes as f64) as i64
        } else {
            128 << 20
        };
        BfcPool {
            regions: Regions::new(device, &options),
            options,
            chunks: ChunkTable::new(),
            in_use: AddressMap::new(),
            labels: Labels::default(),
            split_surplus,
            usage: Stats::default(),
        }
    }

    /// Takes one more region from the GPU and returns its free chunk, which is in no set yet.
    pub(super) fn grow(
        &mut self,
        rounded: u64,
        alignment: u64,
        tag: ChunkTag,
    ) -> AllocResult<Option<ChunkHandle>> {
        let region = self.regions.grow(alignment, rounded)?;
        Ok(region.map(|region| self.add_region(region, tag)))
    }

    /// Returns the largest request for which the pool could grow, as [`Allocator::obtainable_bytes`].
    ///
    /// [`Allocator::obtainable_bytes`]: super::Allocator::obtainable_bytes
    pub(super) fn obtainable_bytes(&self, gpu_bytes: u64) -> u64 {
        let free_bytes = free_page_bytes(gpu_bytes, region_page_bytes(&self.regions()));
        match self.options.start_bytes {
            // One region that is extended in place.
            Some(_) => {
                free_bytes.min(self.regions.limit_bytes.saturating_sub(self.regions.pool_bytes))
            }
            None => self.regions.obtainable_bytes(free_bytes),
        }
    }

    /// Makes a free chunk of memory that the GPU granted; it is in no set yet.
    pub(super) fn add_region(&mut self, region: Region, tag: ChunkTag) -> ChunkHandle {
        let chunks = &mut self.chunks;
        match self.regions.extendable(region) {
            Some(before) => {
                before.bytes += region.bytes;
                let last =
                    chunks.walk(before.first).last().map_or(ChunkHandle::NONE, |(last, _)| last);
                chunks.push(region.address, region.bytes, tag, last)
            }
            None => {
                let first = chunks.push(region.address, region.bytes, tag, ChunkHandle::NONE);
                self.regions.insert_region(region, first);
                first
            }
        }
    }

    /// Returns `true` if a chunk is split for a request rather than handed out whole.
    pub(super) fn should_split(&self, size: u64, rounded: u64) -> bool {
        // Twice a request near 2^64 does not fit; such a request is never smaller than a chunk.
        size >= rounded.saturating_mul(2)
            || (size as i64).wrapping_sub(rounded as i64) >= self.split_surplus
    }

    /// Hands a chunk out.
    pub(super) fn commit(&mut self, handle: ChunkHandle, requested: u64) -> u64 {
        let label = self.labels.current;
        let slot = &mut self.chunks[handle];
        slot.requested = requested;
        slot.in_use = true;
        slot.label = label;
        let ChunkSlot { address, size, .. } = *slot;
        self.usage.count_allocation(size);
        self.in_use.insert(&self.chunks, handle);
        address
    }

    /// Takes a chunk back; it is free afterwards but in no set.
    pub(super) fn release(&mut self, address: u64) -> Result<ChunkHandle> {
        let Some(handle) = self.in_use.remove(&self.chunks, address) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("`{}` has no allocation at address {address:#x}", self.options.name),
            ));
        };
        let slot = &mut self.chunks[handle];
        slot.in_use = false;
        self.usage.bytes_in_use -= slot.size;
        Ok(handle)
    }

    /// Returns `true` if something is allocated at the address.
    pub(super) fn contains_address(&self, address: u64) -> bool {
        self.in_use.contains(&self.chunks, address)
    }

    /// Returns the label of a chunk in use.
    pub(super) fn label_of(&self, slot: &ChunkSlot) -> Option<&Arc<str>> {
        if slot.in_use { self.labels.texts.get(slot.label.checked_sub(1)? as usize) } else { None }
    }

    /// Returns the statistics; the caller knows the largest free chunk.
    pub(super) fn stats(&self, largest_free_block_bytes: u64) -> Stats {
        Stats {
            bytes_limit: Some(self.regions.limit_bytes),
            largest_free_block_bytes: if self.options.reports_largest_free_block {
                largest_free_block_bytes
            } else {
                0
            },
            pool_bytes: Some(self.regions.pool_bytes),
            peak_pool_bytes: Some(self.regions.peak_pool_bytes),
            ..self.usage
        }
    }
}

impl LiveSet for BfcPool {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn jax_version(&self) -> JaxVersion {
        self.options.jax_version
    }

    fn usage(&self) -> &Stats {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Stats {
        &mut self.usage
    }

    fn chunks(&self) -> Vec<Chunk> {
        let regions = self.regions.list.iter();
        regions
            .flat_map(|region| self.chunks.walk(region.first))
            .map(|(_, slot)| Chunk {
                address: slot.address,
                bytes: slot.size,
                requested_bytes: if slot.in_use { slot.requested } else { 0 },
                in_use: slot.in_use,
                tag: slot.tag,
                bin: (!slot.in_use && slot.tag != ChunkTag::Gap).then(|| bin_of(slot.size) as u8),
                label: self.label_of(slot).cloned(),
            })
            .collect()
    }

    fn regions(&self) -> Vec<Region> {
        let region = |region: &PoolRegion| Region { address: region.address, bytes: region.bytes };
        self.regions.list.iter().map(region).collect()
    }

    fn set_label(&mut self, text: Option<&str>) {
        self.labels.set(text);
    }

    fn fidelity(&self) -> Fidelity {
        let (major, minor, _) = self.options.jax_version;
        if self.options.start_bytes.is_some() {
            // The allocator in 0.12.0.1 can do it, and was compared; its client does not ask for it.
            Fidelity::Model(
                "no release of JAX up to 0.12.0.1 lets a pool grow past its fraction, so the sizes that a later one \
                 begins and ends with were not compared",
            )
        } else if (major, minor) > MAX_COMPARED_JAX {
            Fidelity::Model(
                "this release of JAX is newer than 0.12, the latest whose allocator was compared",
            )
        } else {
            Fidelity::Exact
        }
    }
}

/// Labels by number, so that a chunk carries four bytes and not a text. Number 0 is no label.
#[derive(Debug, Default)]
struct Labels {
    texts: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, u32>,
    current: u32,
}

impl Labels {
    fn set(&mut self, text: Option<&str>) {
        self.current = match text {
            None => 0,
            Some(text) => match self.numbers.get(text) {
                Some(number) => *number,
                None => {
                    let text: Arc<str> = text.into();
                    self.texts.push(text.clone());
                    let number = self.texts.len() as u32;
                    self.numbers.insert(text, number);
                    number
                }
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_begin_at_powers_of_two_and_the_last_has_no_end() {
        for (size, bin) in [
            (1, 0),
            (256, 0),
            (511, 0),
            (512, 1),
            ((256 << 20) - 1, 19),
            (256 << 20, 20),
            (u64::MAX, 20),
        ] {
            assert_eq!(bin_of(size), bin, "{size}");
        }
    }

    #[test]
    fn rounding_never_wraps() {
        assert_eq!(round_up(0), Some(0));
        assert_eq!(round_up(1), Some(256));
        assert_eq!(round_up(256), Some(256));
        assert_eq!(round_up(u64::MAX), None);
    }
}
