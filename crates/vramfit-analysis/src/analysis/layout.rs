//! What lies where in the pool of a device at a moment.
//!
//! It is put together from the regions that the GPU gave and the blocks in them; what no block
//! takes is free. A pool gives no region back, so the regions of a moment are those given until then.

use super::arrays::AllocationSites;
use super::series::{LayoutSummary, PieceSummary, RegionSummary};
use crate::allocator::Region;
use crate::replay::Block;
use crate::trace::TextId;

/// Pieces of a layout at most. Where there are more, the smallest neighbors are told as one.
const MAX_PIECES: usize = 4096;

/// A region of a pool, and when the GPU gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantedRegion {
    pub(super) region: Region,
    pub(super) event: u64,
}

/// A stretch of one region before names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    bytes: u64,
    /// Blocks in it; 0 for what is free.
    blocks: u64,
    /// Bytes that are free in it, where it is several told as one.
    free_bytes: u64,
    owner: Option<u32>,
}

/// Puts the layout together. `regions` are those of the pool at the moment.
pub(super) fn layout<'a>(
    regions: impl Iterator<Item = Region>,
    blocks: impl Iterator<Item = &'a Block>,
    makers: &AllocationSites,
    text: impl Fn(TextId) -> String,
    program: impl Fn(u32) -> Option<String>,
) -> LayoutSummary {
    let mut regions: Vec<_> = regions.collect();
    regions.sort_by_key(|region| region.address);
    // What is counted in another pool has no bytes held in this one.
    let mut blocks: Vec<_> = blocks.filter(|block| block.allocated_bytes > 0).collect();
    blocks.sort_by_key(|block| block.address);
    let mut spans: Vec<_> = regions
        .iter()
        .map(|region| {
            let end = region.address.saturating_add(region.bytes);
            let first = blocks.partition_point(|block| block.address < region.address);
            let last = blocks.partition_point(|block| block.address < end);
            stretches(region, &blocks[first..last])
        })
        .collect();
    let mut smallest = 256;
    while spans.iter().map(Vec::len).sum::<usize>() > MAX_PIECES && smallest < u64::MAX {
        spans.iter_mut().for_each(|span| merge(span, smallest));
        smallest = smallest.saturating_mul(2);
    }
    let regions = regions.iter().zip(spans).map(|(region, span)| RegionSummary {
        address: region.address,
        bytes: region.bytes,
        pieces: span
            .iter()
            .map(|stretch| {
                let maker = stretch.owner.map(|owner| makers.get(owner));
                PieceSummary {
                    bytes: stretch.bytes,
                    blocks: stretch.blocks,
                    free_bytes: stretch.free_bytes,
                    purpose: maker.map(|maker| maker.purpose),
                    site: maker.map_or(String::new(), |maker| text(maker.site)),
                    program: maker.and_then(|maker| program(maker.entry)),
                }
            })
            .collect(),
    });
    LayoutSummary { regions: regions.collect() }
}

fn stretches(region: &Region, blocks: &[&Block]) -> Vec<Interval> {
    let mut found = Vec::with_capacity(2 * blocks.len() + 1);
    let end = region.address.saturating_add(region.bytes);
    let mut at = region.address;
    let fill = |found: &mut Vec<Interval>, bytes: u64| {
        if bytes > 0 {
            found.push(Interval { bytes, blocks: 0, free_bytes: bytes, owner: None });
        }
    };
    for block in blocks {
        fill(&mut found, block.address.saturating_sub(at));
        let bytes = block.allocated_bytes.min(end.saturating_sub(block.address));
        at = block.address + bytes;
        match found.last_mut() {
            // Neighbors of one maker are one piece, of this many blocks.
            Some(last) if last.owner == Some(block.owner) => {
                last.bytes += bytes;
                last.blocks += 1;
            }
            _ => found.push(Interval { bytes, blocks: 1, free_bytes: 0, owner: Some(block.owner) }),
        }
    }
    fill(&mut found, end.saturating_sub(at));
    found
}

/// Tells neighbors as one where both are no larger than `smallest`: as the larger of the two.
fn merge(span: &mut Vec<Interval>, smallest: u64) {
    let mut kept: Vec<Interval> = Vec::with_capacity(span.len());
    for stretch in span.drain(..) {
        match kept.last_mut() {
            Some(last) if last.bytes <= smallest && stretch.bytes <= smallest => {
                let owner = match (last.owner, stretch.owner) {
                    (Some(one), Some(_)) if last.bytes >= stretch.bytes => Some(one),
                    (one, None) => one,
                    (_, other) => other,
                };
                *last = Interval {
                    bytes: last.bytes + stretch.bytes,
                    blocks: last.blocks + stretch.blocks,
                    free_bytes: last.free_bytes + stretch.free_bytes,
                    owner,
                };
            }
            _ => kept.push(stretch),
        }
    }
    *span = kept;
}
