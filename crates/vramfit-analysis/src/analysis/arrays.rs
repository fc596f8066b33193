//! Arrays by the line that made them: which of them are there at a moment.
//!
//! Inside an execution the line is that of its call. Outputs are told apart by their place in the
//! program, so that one that stays is not hidden among others that come and go.

use rustc_hash::FxHashMap;

use super::series::ArraySummary;
use crate::replay::Block;
use crate::trace::{Purpose, TextId};

/// Entry of blocks that no program made.
pub(super) const NO_PROGRAM: u32 = u32::MAX;

/// What blocks of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AllocationKey {
    pub(super) device: u32,
    pub(super) purpose: Purpose,
    /// Line that made them, or called the program that did.
    pub(super) site: TextId,
    /// Entry of the program that made them; [`NO_PROGRAM`] for none.
    pub(super) entry: u32,
    /// Which output of the program.
    pub(super) slot: u32,
}

/// Every maker so far, by number.
#[derive(Debug, Default)]
pub(super) struct AllocationSites {
    list: Vec<AllocationKey>,
    numbers: FxHashMap<AllocationKey, u32>,
}

impl AllocationSites {
    /// Returns the number of a maker, a new one if it is new.
    #[inline]
    pub(super) fn number(&mut self, maker: AllocationKey) -> u32 {
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(maker).or_insert(next);
        if number == next {
            self.list.push(maker);
        }
        number
    }

    pub(super) fn get(&self, number: u32) -> &AllocationKey {
        &self.list[number as usize]
    }
}

/// Adds up blocks of one device by purpose, line and program, the most bytes first.
pub(super) fn grouped<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    makers: &AllocationSites,
    name: impl Fn(TextId) -> String,
    program: impl Fn(u32) -> Option<String>,
) -> Vec<ArraySummary> {
    // There may be a million blocks but hardly as many makers, and only makers have names.
    let mut by_maker: FxHashMap<u32, Sum> = FxHashMap::default();
    for block in blocks {
        let sum = by_maker.entry(block.owner).or_default();
        sum.add(1, block.requested_bytes, block.allocated_bytes);
    }
    // Rows of one program in several sizes have one name, and are one maker to a reader.
    let mut by_name: FxHashMap<_, Sum> = FxHashMap::default();
    for (owner, sum) in by_maker {
        let maker = makers.get(owner);
        let key = (name(maker.site), program(maker.entry), maker.purpose);
        let whole = by_name.entry(key).or_default();
        whole.add(sum.count, sum.bytes, sum.allocated_bytes);
    }
    let arrays = by_name.into_iter().map(|((site, program, purpose), sum)| ArraySummary {
        site,
        program,
        purpose,
        count: sum.count,
        bytes: sum.bytes,
        allocated_bytes: sum.allocated_bytes,
    });
    let mut arrays: Vec<_> = arrays.collect();
    arrays.sort_by(|a, b| {
        let name = |of: &ArraySummary| (of.site.clone(), of.program.clone(), of.purpose as u8);
        let larger = b.allocated_bytes.cmp(&a.allocated_bytes);
        larger.then_with(|| name(a).cmp(&name(b)))
    });
    arrays
}

/// Arrays added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) count: u64,
    /// Requested.
    pub(super) bytes: u64,
    /// Taken of the pool.
    pub(super) allocated_bytes: u64,
}

impl Sum {
    #[inline]
    pub(super) fn add(&mut self, count: u64, bytes: u64, allocated_bytes: u64) {
        self.count += count;
        self.bytes = self.bytes.saturating_add(bytes);
        self.allocated_bytes = self.allocated_bytes.saturating_add(allocated_bytes);
    }
}
