//! What a BFC pool writes to the log when a request fails for good, in the words of each version.
//!
//! Checked byte for byte against recorded dumps of three versions, apart from the prefix that the
//! logging library puts before each record. Which version a release of JAX has was found in the texts
//! of the released plugins: 0.8.1 still shows plain integers, 0.8.2 does not, 0.11.0 shows tags.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::chunk_table::{ChunkHandle, ChunkSlot, ChunkTag};
use super::config::JaxVersion;
use super::live_set::LiveSet;
use super::log_record::{LogRecord, info, warning};
use super::message::human_readable_bytes;
use super::pool::{BINS, BfcPool, bin_of};
use super::spatial_policy::PoolEnd;
use super::units::round_up;

/// The wordings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LogStyle {
    /// Plain integers in the pool line and the statistics.
    Integers,
    /// Sizes for people.
    Sizes,
    /// Ends, tags, labels.
    PoolEnds,
}

fn style(jax: JaxVersion) -> LogStyle {
    match jax {
        jax if jax < (0, 8, 2) => LogStyle::Integers,
        jax if jax < (0, 11, 0) => LogStyle::Sizes,
        _ => LogStyle::PoolEnds,
    }
}

/// What the dump says of the free chunks, which the two kinds of pool keep differently.
pub(super) struct FreeChunks {
    /// The end of the request.
    pub(super) end: PoolEnd,
    /// Every free chunk in a bin, in the order of the bins.
    pub(super) binned: Vec<ChunkHandle>,
    /// The gap of a partitioned pool.
    pub(super) gap: Option<ChunkHandle>,
}

impl PoolEnd {
    /// Returns the word for it in XLA's texts.
    pub(super) fn label(self) -> &'static str {
        match self {
            PoolEnd::Lower => "lower",
            PoolEnd::Upper => "upper",
        }
    }
}

/// Returns the warning for a request whose failure the caller can live with (autotuning, scratch).
pub fn refusal_warning(name: &str, bytes: u64, end: PoolEnd, jax: JaxVersion) -> LogRecord {
    let from = match style(jax) {
        LogStyle::PoolEnds => format!(" from the {} end", end.label()),
        _ => String::new(),
    };
    warning(format!(
        "Allocator ({name}) ran out of memory trying to allocate {}{from} with freed_by_count=0. \
         The caller indicates that this is not a failure, but this may mean that there could be \
         performance gains if more memory were available.",
        human_readable_bytes(bytes),
    ))
}

/// Returns the whole dump, from the header to the map.
pub(super) fn dump(pool: &BfcPool, free: &FreeChunks, bytes: u64) -> Vec<LogRecord> {
    let rounded = round_up(bytes).unwrap_or(u64::MAX);
    let style = style(pool.options.jax_version);
    let mut records = vec![header(pool, free.end, bytes, rounded, style)];
    records.push(info(format!("BFCAllocator dump for {}", pool.options.name)));
    records.extend(bins(pool));
    records.extend(target_bin(pool, free, rounded));
    records.extend(regions(pool, style));
    let total = in_use_by_size(pool, &mut records);
    records.push(info(format!("Sum Total of in-use chunks: {}", human_readable_bytes(total))));
    records.extend(pool_lines(pool, free, rounded, style));
    records.push(statistics(pool, free, style));
    records.push(warning(map(pool)));
    records
}

fn header(pool: &BfcPool, end: PoolEnd, bytes: u64, rounded: u64, style: LogStyle) -> LogRecord {
    let what = format!(
        "Allocator ({}) ran out of memory trying to allocate {} (rounded to {rounded})",
        pool.options.name,
        human_readable_bytes(bytes),
    );
    warning(if style == LogStyle::PoolEnds {
        format!(
            "{what} from the {} end requested by op \nIf this is caused by memory fragmentation, \
             the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' may improve the \
             situation.\nCurrent allocation summary follows.",
            end.label(),
        )
    } else {
        // The missing space, the space at the end of a line and the repetition are XLA's.
        format!(
            "{what}requested by op \nIf the cause is memory fragmentation maybe the environment \
             variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n\
             Current allocation summary follows.\nCurrent allocation summary follows."
        )
    })
}

fn all_chunks(pool: &BfcPool) -> impl Iterator<Item = &ChunkSlot> {
    let regions = pool.regions.list.iter();
    regions.flat_map(|region| pool.chunks.walk(region.first)).map(|(_, slot)| slot)
}

fn bins(pool: &BfcPool) -> Vec<LogRecord> {
    #[derive(Clone, Copy, Default)]
    struct Bin {
        chunks: u64,
        chunks_in_use: u64,
        bytes: u64,
        bytes_in_use: u64,
        requested: u64,
    }
    let mut bins = [Bin::default(); BINS];
    for slot in all_chunks(pool).filter(|slot| slot.in_use || slot.tag != ChunkTag::Gap) {
        let bin = &mut bins[bin_of(slot.size)];
        bin.chunks += 1;
        bin.bytes += slot.size;
        if slot.in_use {
            bin.chunks_in_use += 1;
            bin.bytes_in_use += slot.size;
            bin.requested += slot.requested;
        }
    }
    let lines = bins.iter().enumerate().map(|(number, bin)| {
        info(format!(
            "Bin ({}): \tTotal Chunks: {}, Chunks in use: {}. {} allocated for chunks. {} in use \
             in bin. {} client-requested in use in bin.",
            256u64 << number,
            bin.chunks,
            bin.chunks_in_use,
            human_readable_bytes(bin.bytes),
            human_readable_bytes(bin.bytes_in_use),
            human_readable_bytes(bin.requested),
        ))
    });
    lines.collect()
}

/// Lists the free chunks of the bin that the request would have come from.
fn target_bin(pool: &BfcPool, free: &FreeChunks, rounded: u64) -> Vec<LogRecord> {
    let wanted = bin_of(rounded);
    let mut records = vec![info(format!(
        "Bin for {} was {}, Chunk State: ",
        human_readable_bytes(rounded),
        human_readable_bytes(256 << wanted),
    ))];
    for &handle in &free.binned {
        let slot = &pool.chunks[handle];
        if bin_of(slot.size) != wanted {
            continue;
        }
        let mut text = chunk_state(slot);
        for (word, neighbor) in [("prev", slot.prev), ("next", slot.next)] {
            if neighbor != ChunkHandle::NONE {
                write!(text, ", {word}: {}", chunk_state(&pool.chunks[neighbor]))
                    .expect("writing to a string does not fail");
            }
        }
        records.push(info(text));
    }
    records
}

fn chunk_state(slot: &ChunkSlot) -> String {
    let binned = !slot.in_use && slot.tag != ChunkTag::Gap;
    format!(
        "  Size: {} | Requested Size: {} | in_use: {} | bin_num: {}",
        human_readable_bytes(slot.size),
        human_readable_bytes(slot.requested),
        u8::from(slot.in_use),
        if binned { bin_of(slot.size) as i64 } else { -1 },
    )
}

fn regions(pool: &BfcPool, style: LogStyle) -> Vec<LogRecord> {
    let mut records = Vec::new();
    for region in &pool.regions.list {
        records.push(info(format!("Next region of size {}", region.bytes)));
        for (_, slot) in pool.chunks.walk(region.first) {
            let state = if slot.in_use { "InUse" } else { "Free " };
            let mut text = format!("{state} at {:x} of size {}", slot.address, slot.size);
            if style == LogStyle::PoolEnds {
                let tag = match slot.tag {
                    ChunkTag::Lower => "lower",
                    ChunkTag::Upper => "upper",
                    ChunkTag::Gap => "central_gap",
                };
                text += &format!(" tag {tag}");
                if let Some(label) = pool.label_of(slot) {
                    text += &format!(" allocation_annotation {label}");
                }
            }
            // XLA's slot numbers have 64 bits, and all ones mean none.
            let next =
                if slot.next == ChunkHandle::NONE { u64::MAX } else { u64::from(slot.next.0) };
            text += &format!(" next {next}");
            records.push(info(text));
        }
    }
    records
}

fn in_use_by_size(pool: &BfcPool, records: &mut Vec<LogRecord>) -> u64 {
    records.push(info("     Summary of in-use Chunks by size: ".to_owned()));
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for slot in all_chunks(pool).filter(|slot| slot.in_use) {
        *counts.entry(slot.size).or_default() += 1;
    }
    for (size, count) in &counts {
        let total = human_readable_bytes(size * count);
        records.push(info(format!("{count} Chunks of size {size} totalling {total}")));
    }
    counts.iter().map(|(size, count)| size * count).sum()
}

fn pool_lines(pool: &BfcPool, free: &FreeChunks, rounded: u64, style: LogStyle) -> Vec<LogRecord> {
    let taken = pool.regions.pool_bytes;
    let limit = pool.regions.limit_bytes;
    let left = limit.saturating_sub(taken);
    let next = pool.regions.next_region_bytes;
    let show = human_readable_bytes;
    match style {
        LogStyle::Integers => vec![info(format!(
            "Total bytes in pool: {taken} memory_limit_: {limit} available bytes: {left} \
             curr_region_allocation_bytes_: {next}"
        ))],
        LogStyle::Sizes => vec![info(format!(
            "Total size in pool: {} memory_limit_: {} available size: {} \
             curr_region_allocation_bytes_: {}",
            show(taken),
            show(limit),
            show(left),
            show(next),
        ))],
        LogStyle::PoolEnds => {
            let (any, own, gap) = largest(pool, free);
            let word = free.end.label();
            let mut records = vec![info(format!(
                "Allocator memory summary: rounded request {}, total free in pool {}, largest free \
                 chunk usable by {word} end {}, unallocated bytes {}, pool size {}, pool limit {}",
                show(rounded),
                show(taken - pool.usage().bytes_in_use),
                show(own.max(gap)),
                show(left),
                show(taken),
                show(limit),
            ))];
            if free.gap.is_some() {
                records.push(info(format!(
                    "Spatial partitioning summary for {word} end: central gap {}, largest same-end \
                     binned free chunk {}, largest binned free chunk from any end {}. The central \
                     gap is shared by lower/upper allocations and is not inserted into a bin.",
                    show(gap),
                    show(own),
                    show(any),
                )));
            }
            let growth = if pool.options.grows {
                " (growth enabled)."
            } else {
                " (growth disabled; fixed-size pool; not an attempted allocation)."
            };
            records.push(info(format!(
                "Allocator region growth hint: next region allocation target {}{growth}",
                show(next),
            )));
            records
        }
    }
}

/// Returns the largest binned free chunk of any end, that of the request's end, and the gap.
fn largest(pool: &BfcPool, free: &FreeChunks) -> (u64, u64, u64) {
    let own_tag = match free.end {
        PoolEnd::Lower => ChunkTag::Lower,
        PoolEnd::Upper => ChunkTag::Upper,
    };
    let slots = || free.binned.iter().map(|&handle| &pool.chunks[handle]);
    let any = slots().map(|slot| slot.size).max();
    let own = slots().filter(|slot| slot.tag == own_tag).map(|slot| slot.size).max();
    let gap = free.gap.map_or(0, |gap| pool.chunks[gap].size);
    (any.unwrap_or(0), own.unwrap_or(0), gap)
}

fn statistics(pool: &BfcPool, free: &FreeChunks, style: LogStyle) -> LogRecord {
    let (any, _, gap) = largest(pool, free);
    // The older versions do not fill this one in.
    let largest_free = if style == LogStyle::PoolEnds { any.max(gap) } else { 0 };
    let stats = pool.stats(largest_free);
    let show = |bytes: u64| match style {
        LogStyle::Integers => bytes.to_string(),
        _ => human_readable_bytes(bytes),
    };
    let mut text = "Stats: \n".to_owned();
    let mut line = |label: &str, width: usize, value: String| {
        text += &format!("{label:<width$}{value:>20}\n");
    };
    line("Limit:", 18, show(pool.regions.limit_bytes));
    line("InUse:", 18, show(stats.bytes_in_use));
    line("MaxInUse:", 18, show(stats.peak_bytes_in_use));
    line("NumAllocs:", 18, stats.num_allocs.to_string());
    line("MaxAllocSize:", 18, show(stats.largest_alloc_size));
    line("Reserved:", 18, show(0));
    line("PeakReserved:", 18, show(0));
    if style == LogStyle::PoolEnds {
        // Four columns to the right, and not filled in before 0.11.2.
        let filled = pool.options.jax_version >= (0, 11, 2);
        line("PeakAllocated:", 22, show(if filled { stats.peak_bytes_in_use } else { 0 }));
    }
    line("LargestFreeBlock:", 18, show(largest_free));
    info(text)
}

/// Draws all regions end to end in 100 characters: `*` requested, `x` given out beyond that, `_` free.
fn map(pool: &BfcPool) -> String {
    const MAP_CELLS: u64 = 100;
    let regions = &pool.regions.list;
    let total: u64 = regions.iter().map(|region| region.bytes).sum();
    if total == 0 {
        return "<allocator contains no memory>".to_owned();
    }
    let mut cells = vec![b'_'; MAP_CELLS as usize];
    let mut draw = |begin: u64, bytes: u64, with: u8| {
        // In 128 bits: a hundred times a unified-memory pool may not fit 64.
        let cell = |at: u64| (u128::from(at) * u128::from(MAP_CELLS) / u128::from(total)) as usize;
        cells[cell(begin)..=cell(begin + bytes - 1)].fill(with);
    };
    let mut before = 0;
    for region in regions {
        for (_, slot) in pool.chunks.walk(region.first).filter(|(_, slot)| slot.in_use) {
            let begin = before + slot.address - region.address;
            if slot.size > slot.requested {
                draw(begin + slot.requested, slot.size - slot.requested, b'x');
            }
            draw(begin, slot.requested, b'*');
        }
        before += region.bytes;
    }
    cells.into_iter().map(char::from).collect()
}
