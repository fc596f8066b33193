//! The dump that a BFC pool logs when a request fails, in the wordings of `allocator/dump.rs`.

use super::allocator::pool_stats;
use super::{Match, Pattern, after_label, contains, head, labelled_size, lossy, until};
use crate::allocator::ChunkTag;
use crate::explain::LoggedChunk;
use crate::explain::dump_line::{BinFigures, DumpLine, PoolFigures};
use crate::explain::message::Message;
use crate::explain::number::{integer, size};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::fixed("bfcallocatordumpfor", Message::Dump(DumpLine::Begin)),
    Pattern::new("bin(", bin),
    Pattern::new("nextregionofsize", region),
    Pattern::new("inuseat", |at| chunk(at, true)),
    Pattern::new("freeat", |at| chunk(at, false)),
    Pattern::new("sumtotalofin-usechunks:", in_use),
    Pattern::new("totalbytesinpool:", pool_line),
    Pattern::new("total_region_allocated_bytes_:", pool_line),
    Pattern::new("totalsizeinpool:", pool_line),
    Pattern::new("allocatormemorysummary:", pool_summary),
    Pattern::new("stats:", stats),
    Pattern::new(RUNS[0], map),
    Pattern::new(RUNS[1], map),
    Pattern::new(RUNS[2], map),
    Pattern::new(RUNS[3], map),
    Pattern::new(RUNS[4], map),
    Pattern::new(RUNS[5], map),
    Pattern::new(RUNS[6], map),
    // In place of the map, where the pool has no region.
    Pattern::new("<allocatorcontainsnomemory>", |_| {
        dump(DumpLine::Map { cells: "_".repeat(MAP_CELLS) })
    }),
];

/// The characters of a map.
const MAP_CELLS: usize = 100;

/// What a map has where it is found; short runs are those of a pool in pieces.
const RUNS: [&str; 7] =
    ["**********", "__________", "xxxxxxxxxx", "*____", "____*", "x____", "____x"];

fn dump(line: DumpLine) -> Option<Message> {
    Some(Message::Dump(line))
}

/// `Bin (256): Total Chunks: 3, Chunks in use: 2. 768B allocated for chunks. 512B in use in bin. …`
fn bin(at: &Match<'_>) -> Option<Message> {
    let (min_bytes, rest) = integer(at.record())?;
    let (chunks, rest) = integer(rest.strip_prefix(b"):totalchunks:")?)?;
    let (chunks_in_use, rest) = integer(rest.strip_prefix(b",chunksinuse:")?)?;
    let (bytes, rest) = size(rest.strip_prefix(b".")?)?;
    let (in_use, _) = size(rest.strip_prefix(b"allocatedforchunks.")?)?;
    dump(DumpLine::Bin(BinFigures {
        min_bytes,
        chunks,
        chunks_in_use,
        bytes: bytes.bytes,
        bytes_in_use: in_use.bytes,
    }))
}

fn region(at: &Match<'_>) -> Option<Message> {
    let (bytes, _) = integer(at.record())?;
    dump(DumpLine::Region { bytes })
}

/// `InUse at 7f0000000000 of size 256 next 1`, with ` tag lower` before ` next` since JAX 0.11.
fn chunk(at: &Match<'_>, in_use: bool) -> Option<Message> {
    let text = at.record();
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let address = std::str::from_utf8(&text[..digits]).ok()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (bytes, rest) = integer(text[digits..].strip_prefix(b"ofsize")?)?;
    let tag = rest.strip_prefix(b"tag").and_then(|tag| {
        [
            (&b"lower"[..], ChunkTag::Lower),
            (b"upper", ChunkTag::Upper),
            (b"central_gap", ChunkTag::Gap),
        ]
        .into_iter()
        .find_map(|(name, which)| tag.starts_with(name).then_some(which))
    });
    dump(DumpLine::Chunk(LoggedChunk {
        address,
        bytes,
        in_use,
        tag: tag.unwrap_or(ChunkTag::Lower),
    }))
}

fn in_use(at: &Match<'_>) -> Option<Message> {
    let (size, _) = size(at.record())?;
    dump(DumpLine::InUse { size })
}

/// `Total bytes in pool: N memory_limit_: N available bytes: N curr_region_allocation_bytes_: N`; older releases begin it
/// with `total_region_allocated_bytes_: N`
fn pool_line(at: &Match<'_>) -> Option<Message> {
    let (pool, rest) = size(at.record())?;
    let (limit, rest) = size(after_label(rest, "memory_limit_:")?)?;
    let left = after_label(rest, "availablebytes:").or(after_label(rest, "availablesize:"))?;
    let (_, rest) = size(left)?;
    let next = after_label(rest, "curr_region_allocation_bytes_:").and_then(size);
    dump(DumpLine::Pool(PoolFigures {
        pool,
        limit,
        next_region: next.map(|(size, _)| size),
        ..PoolFigures::default()
    }))
}

/// `Allocator memory summary: rounded request A, total free in pool B, largest free chunk usable by lower end
/// C, unallocated bytes D, pool size E, pool limit F`, since JAX 0.11
fn pool_summary(at: &Match<'_>) -> Option<Message> {
    let text = at.record();
    let field = |label: &str| labelled_size(text, label);
    let largest = after_label(text, "largestfreechunkusableby")?;
    let (largest, _) = size(after_label(head(largest, 24), "end")?)?;
    field("unallocatedbytes")?;
    // The next record says whether the pool grows.
    let growth = after_label(at.after(), "allocatorregiongrowthhint:")
        .map(|hint| !contains(head(hint, 160), "growthdisabled"));
    dump(DumpLine::Pool(PoolFigures {
        pool: field("poolsize")?,
        limit: field("poollimit")?,
        next_region: None,
        largest_usable: Some(largest),
        free: field("totalfreeinpool"),
        grows: growth,
    }))
}

fn stats(at: &Match<'_>) -> Option<Message> {
    const MAX_STATS_BYTES: usize = 1200;
    dump(DumpLine::Stats(pool_stats(head(at.after(), MAX_STATS_BYTES))?))
}

/// The row of `*`, `x` and `_` that shows what is in use: of 100 characters, and of others where the text in front of
/// it says that it is one. Rulers in other logs look the same.
fn map(at: &Match<'_>) -> Option<Message> {
    const MAX_CELLS: usize = 1000;
    const MIN_CELLS: usize = 20;
    const MAX_DISTANCE: usize = 400;
    // The row was looked at where it begins: long ones are found anew every few characters.
    if RUNS.iter().any(|run| at.before(run.len()) == run.as_bytes()) {
        return None;
    }
    let is_cell = |byte: &&u8| matches!(**byte, b'*' | b'_' | b'x');
    let before = at.before(MAX_CELLS).iter().rev().take_while(is_cell).count();
    let after = at.record().iter().take(MAX_CELLS).take_while(is_cell).count();
    let whole = before + (at.to - at.from) + after;
    // Found where it begins; what begins later in it is the same map again.
    let text = &at.block.text()[at.from - before..at.to + after];
    let first = RUNS.iter().filter_map(|run| memchr::memmem::find(text, run.as_bytes())).min();
    let lead = at.before_in_log(before + MAX_DISTANCE);
    let lead = &lead[..lead.len() - before];
    let is_of_allocator =
        whole == MAP_CELLS || ((MIN_CELLS..=MAX_CELLS).contains(&whole) && is_lead_of_map(lead));
    (is_of_allocator && first == Some(before))
        .then(|| Message::Dump(DumpLine::Map { cells: lossy(until(text, b"\n")) }))
}

/// Returns `true` if a map follows: behind the name of the allocator's source file, or of its last words before it.
fn is_lead_of_map(lead: &[u8]) -> bool {
    const SOURCE: &[u8] = b"bfc_allocator.cc:";
    let ends = [
        &b"requestedbyop"[..],
        b"currentallocationsummaryfollows.",
        b"willimprovethesituation.",
        b"mayimprovethesituation.",
    ];
    let text = lead.strip_suffix(b"\n").unwrap_or(lead);
    let number = text.strip_suffix(b"]").unwrap_or_default();
    let digits = number.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let is_logged = number[..number.len() - digits.count()].ends_with(SOURCE);
    is_logged || ends.iter().any(|end| text.ends_with(end))
}
