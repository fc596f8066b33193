//! Arrays by the line that made them: which of them are there at a moment.
//!
//! Inside an execution the line is that of its call. Outputs are told apart by their place in the
//! program, so that one that stays is not hidden among others that come and go.

use rustc_hash::FxHashMap;

use super::course::ArrayAnswer;
use super::replay::Block;
use super::{Purpose, TextId};

/// Row of blocks that no program made.
pub(super) const NO_ROW: u32 = u32::MAX;

/// What blocks of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Maker {
    pub(super) device: u32,
    pub(super) purpose: Purpose,
    /// Line that made them, or called the program that did.
    pub(super) site: TextId,
    /// Row of the program that made them; [`NO_ROW`] for none.
    pub(super) row: u32,
    /// Which output of the program.
    pub(super) slot: u32,
}

/// Every maker so far, by number.
#[derive(Debug, Default)]
pub(super) struct Makers {
    list: Vec<Maker>,
    numbers: FxHashMap<Maker, u32>,
}

impl Makers {
    /// Returns the number of a maker, a new one if it is new.
    #[inline]
    pub(super) fn number(&mut self, maker: Maker) -> u32 {
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(maker).or_insert(next);
        if number == next {
            self.list.push(maker);
        }
        number
    }

    pub(super) fn get(&self, number: u32) -> &Maker {
        &self.list[number as usize]
    }
}

/// Adds up blocks of one device by purpose, line and program, the most bytes first.
pub(super) fn grouped<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    makers: &Makers,
    name: impl Fn(TextId) -> String,
    program: impl Fn(u32) -> Option<String>,
) -> Vec<ArrayAnswer> {
    let mut sums: FxHashMap<(TextId, Option<String>, Purpose), [u64; 3]> = FxHashMap::default();
    // Rows of the same program in other sizes have the same name, and are one maker to a reader.
    let mut names: FxHashMap<u32, Option<String>> = FxHashMap::default();
    for block in blocks {
        let maker = makers.get(block.owner);
        let row = names.entry(maker.row);
        let program = row.or_insert_with(|| program(maker.row)).clone();
        let sum = sums.entry((maker.site, program, maker.purpose)).or_default();
        sum[0] += 1;
        sum[1] = sum[1].saturating_add(block.requested_bytes);
        sum[2] = sum[2].saturating_add(block.held_bytes);
    }
    let arrays = sums.into_iter().map(|((site, program, purpose), sum)| ArrayAnswer {
        site: name(site),
        program,
        purpose,
        count: sum[0],
        bytes: sum[1],
        held_bytes: sum[2],
    });
    let mut arrays: Vec<_> = arrays.collect();
    let key = |array: &ArrayAnswer| {
        let name = (array.site.clone(), array.program.clone());
        (std::cmp::Reverse(array.held_bytes), name, array.purpose as u8)
    };
    arrays.sort_by_cached_key(key);
    arrays
}
