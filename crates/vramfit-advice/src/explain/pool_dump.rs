//! The dump of a pool: its address map put together from the lines of a log, or from the binary form.

use super::block::Place;
use super::cause::Evidence;
use super::dump_line::{BinFigures, DumpLine, PoolFigures, PoolStats};
use super::number::{Size, add_sizes};
use super::{LoggedChunk, LoggedRegion};
use crate::allocator::{ChunkTag, PoolEnd};

/// Chunks of one dump that are kept; what has more is told by its own sums.
const MAX_CHUNKS: usize = 400_000;
/// Regions of one dump: a pool doubles the size of each further one.
const MAX_REGIONS: usize = 10_000;
/// A pool has 21 bins; those of several dumps may follow each other.
const MAX_BINS: usize = 256;

impl LoggedRegion {
    /// Returns `true` if its chunks follow each other without a gap and fill it.
    fn is_complete(&self) -> bool {
        let follow = self
            .chunks
            .windows(2)
            .all(|pair| pair[0].address.checked_add(pair[0].bytes) == Some(pair[1].address));
        let sizes = self.chunks.iter().map(|chunk| u128::from(chunk.bytes));
        follow && sizes.sum::<u128>() == u128::from(self.bytes)
    }
}

/// What the dump of a pool tells.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolDump {
    /// The end of a partitioned pool that the request was made to.
    pub(super) end: Option<PoolEnd>,
    /// All regions by address, where the dump has every chunk; else none.
    pub(super) regions: Vec<LoggedRegion>,
    pub(super) bins: Vec<BinFigures>,
    pub(super) in_use: Option<Size>,
    pub(super) figures: Option<PoolFigures>,
    pub(super) stats: Option<PoolStats>,
    pub(super) map: Option<String>,
    /// The line that has its figures.
    pub(super) figures_at: Option<Evidence>,
    /// Index of the log that it is in.
    pub(super) source: usize,
    /// Whether it is of CUDA's own pool. What that shows as its limit is how much it keeps, not how much it may take.
    pub(super) is_of_cuda: bool,
}

impl PoolDump {
    /// Returns `true` if it has the address of every byte of the pool.
    pub(super) fn is_complete(&self) -> bool {
        !self.regions.is_empty()
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &LoggedChunk> {
        self.regions.iter().flat_map(|region| &region.chunks)
    }

    /// Returns the bytes that the pool has from the driver.
    pub(super) fn pool_bytes(&self) -> Option<u64> {
        let exact = self.regions.iter().map(|region| region.bytes);
        match self.is_complete() {
            true => Some(add_sizes(exact)),
            false => self.figures.map(|figures| figures.pool.bytes),
        }
    }

    /// Returns the limit of the pool, and how far it may be from that.
    pub(super) fn limit(&self) -> Option<Size> {
        if self.is_of_cuda {
            return None;
        }
        let stats = self.stats.and_then(|stats| stats.limit).filter(|limit| limit.max() > 0);
        let figures = self.figures.map(|figures| figures.limit);
        match (stats, figures) {
            (Some(stats), Some(figures)) => Some(stats.or_more_exact(figures)),
            (stats, figures) => stats.or(figures),
        }
    }

    pub(super) fn in_use_bytes(&self) -> Option<u64> {
        if self.is_complete() {
            let used = self.chunks().filter(|chunk| chunk.in_use);
            return Some(add_sizes(used.map(|chunk| chunk.bytes)));
        }
        let stats = self.stats.and_then(|stats| stats.in_use);
        let told = stats.or(self.in_use).map(|size| size.bytes);
        // More than the limit is a figure that was misread, or damaged.
        told.filter(|bytes| self.limit().is_none_or(|limit| *bytes <= limit.max()))
    }

    /// Returns the free bytes of the pool.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        if self.is_complete() {
            let free = self.chunks().filter(|chunk| !chunk.in_use);
            return Some(add_sizes(free.map(|chunk| chunk.bytes)));
        }
        let told = self.figures.and_then(|figures| figures.free);
        told.map(|size| size.bytes).or_else(|| self.pool_bytes()?.checked_sub(self.in_use_bytes()?))
    }

    /// Returns the largest free chunk that the request may have: of its own end, or the gap.
    pub(super) fn largest_usable_bytes(&self) -> Option<u64> {
        if self.is_complete() {
            let other = match self.end {
                Some(PoolEnd::Lower) => Some(ChunkTag::Upper),
                Some(PoolEnd::Upper) => Some(ChunkTag::Lower),
                None => None,
            };
            let free = self.chunks().filter(|chunk| !chunk.in_use);
            let usable = free.filter(|chunk| Some(chunk.tag) != other);
            return Some(usable.map(|chunk| chunk.bytes).max().unwrap_or(0));
        }
        let figures = self.figures.and_then(|figures| figures.largest_usable);
        let stats = self.stats.and_then(|stats| stats.largest_free_block);
        // Releases before 0.11 always show 0 here.
        figures.or(stats.filter(|size| size.bytes > 0)).map(|size| size.bytes)
    }

    /// Returns whether the pool grows on demand, where the dump tells.
    pub(super) fn grows(&self) -> Option<bool> {
        let figures = self.figures?;
        // Without preallocation the first region has 2 MiB, and each further one twice as much; with it
        // the first is to be the whole limit.
        let by_region = figures.next_region.map(|next| next.max() < figures.limit.min());
        figures.grows.or(by_region)
    }

    /// Returns what is left of the limit, rounded to what a pool can ask for.
    pub(super) fn unallocated_bytes(&self) -> Option<u64> {
        const UNIT: u64 = 256;
        let left = self.limit()?.bytes.saturating_sub(self.pool_bytes()?);
        Some(left / UNIT * UNIT)
    }

    /// Returns `true` if one end of a partitioned pool made the request.
    pub(super) fn is_partitioned(&self) -> bool {
        self.chunks().any(|chunk| chunk.tag != ChunkTag::Lower)
    }
}

/// Puts a dump together.
#[derive(Clone, Debug, Default)]
pub(super) struct DumpBuilder {
    dump: PoolDump,
    regions: Vec<LoggedRegion>,
    chunks: usize,
    first_line: u64,
    /// Whether something does not fit together, such as lines of two processes.
    broken: bool,
}

impl DumpBuilder {
    /// Begins the dump of a refused request.
    pub(super) fn new(end: Option<PoolEnd>) -> Self {
        let mut builder = DumpBuilder::default();
        builder.dump.end = end;
        builder
    }

    pub(super) fn first_line(&self) -> u64 {
        self.first_line
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: DumpLine, place: Option<&Place>) {
        if let Some(place) = place.filter(|_| self.first_line == 0) {
            self.first_line = place.line;
        }
        match line {
            DumpLine::Begin => {}
            DumpLine::Bin(bin) if self.dump.bins.len() < MAX_BINS => self.dump.bins.push(bin),
            DumpLine::Bin(_) => {}
            DumpLine::Region { bytes } => self.add_region(bytes),
            DumpLine::Chunk(chunk) => self.add_chunk(chunk),
            DumpLine::InUse { size } => self.dump.in_use = Some(size),
            DumpLine::Pool(figures) => {
                self.dump.figures = Some(figures);
                self.dump.figures_at = place.map(Evidence::from);
            }
            DumpLine::Stats(stats) => {
                self.dump.stats = Some(stats);
                let at = self.dump.figures_at.take();
                self.dump.figures_at = at.or(place.map(Evidence::from));
            }
            DumpLine::Map { cells } => {
                self.dump.map.get_or_insert(cells);
            }
        }
    }

    fn add_region(&mut self, bytes: u64) {
        match self.regions.len() < MAX_REGIONS {
            true => self.regions.push(LoggedRegion { bytes, chunks: Vec::new() }),
            false => self.broken = true,
        }
    }

    fn add_chunk(&mut self, chunk: LoggedChunk) {
        self.chunks += 1;
        match self.regions.last_mut() {
            Some(region) if self.chunks <= MAX_CHUNKS => region.chunks.push(chunk),
            // The log begins inside of a region, or the dump is larger than anything known.
            _ => self.broken = true,
        }
    }

    /// Returns the dump, unless there is nothing in it.
    pub(super) fn build(mut self) -> Option<PoolDump> {
        // Together they are less than all addresses, so that sums of them are numbers of 64 bits.
        let sizes = self.regions.iter().map(|region| u128::from(region.bytes));
        let possible = sizes.sum::<u128>() <= u128::from(u64::MAX);
        let whole = self.regions.iter().all(LoggedRegion::is_complete);
        let complete = !self.broken && possible && whole;
        if complete {
            self.dump.regions = self.regions;
            let sum = self.dump.in_use_bytes().unwrap_or(0);
            let agrees = self.dump.in_use.is_none_or(|told| told.agrees_with(Size::exact(sum)));
            if !agrees {
                self.dump.regions.clear();
            }
        }
        let dump = self.dump;
        let tells = dump.is_complete()
            || dump.figures.is_some()
            || dump.stats.is_some()
            || dump.map.is_some()
            || !dump.bins.is_empty()
            || dump.in_use.is_some();
        tells.then_some(dump)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(lines: Vec<DumpLine>) -> PoolDump {
        let mut builder = DumpBuilder::default();
        for line in lines {
            builder.add(line, None);
        }
        builder.add(DumpLine::InUse { size: Size::exact(7) }, None);
        builder.build().expect("it says what is in use")
    }

    fn region(address: u64, bytes: u64) -> [DumpLine; 2] {
        let chunk = LoggedChunk { address, bytes, in_use: false, tag: ChunkTag::Lower };
        [DumpLine::Region { bytes }, DumpLine::Chunk(chunk)]
    }

    #[test]
    fn regions_larger_than_all_addresses_are_no_map() {
        let huge = [region(0, u64::MAX), region(0, u64::MAX)];
        assert!(!built(huge.concat()).is_complete());
    }

    #[test]
    fn a_dump_takes_no_more_memory_than_a_pool_can_need() {
        let regions = vec![DumpLine::Region { bytes: 1 }; MAX_REGIONS + 1];
        assert!(!built(regions).is_complete());
        let bins = vec![DumpLine::Bin(BinFigures::default()); MAX_BINS + 1];
        assert_eq!(built(bins).bins.len(), MAX_BINS);
    }
}
