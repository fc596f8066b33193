//! Selections of elements: regular hyperslabs, as virtual datasets are mapped by them.

use std::ops::Range;

use vramfit_base::Result;

use super::cursor::Cursor;
use super::dataspace::MAX_AXES;
use super::virtual_map::unsupported;

/// A count or a block without limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// More blocks than this are not compared one by one.
const MAX_COMPARED: u64 = 1 << 20;

/// What is selected of one axis: `count` blocks of `block` elements, whose starts are `stride` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisSelection {
    pub(crate) start: u64,
    pub(crate) stride: u64,
    pub(crate) count: u64,
    pub(crate) block: u64,
}

impl AxisSelection {
    /// All of an axis.
    pub(crate) fn all(length: u64) -> AxisSelection {
        AxisSelection { start: 0, stride: 1, count: 1, block: length }
    }

    /// Whether it has no end.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.count == UNLIMITED || self.block == UNLIMITED
    }

    /// Returns how many elements are selected. Together with `end` this is checked where selections are read.
    pub(crate) fn len(&self) -> u64 {
        self.count * self.block
    }

    /// Returns where it ends; none if that has no 64 bits.
    pub(crate) fn end(&self) -> Option<u64> {
        if self.count == 0 || self.block == 0 {
            return Some(0);
        }
        self.count.checked_mul(self.block)?;
        (self.count - 1).checked_mul(self.stride)?.checked_add(self.start)?.checked_add(self.block)
    }

    /// Whether the elements follow each other without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.count == 1 || self.stride == self.block
    }

    /// Returns the selected element of a number.
    pub(crate) fn at(&self, number: u64) -> u64 {
        self.start + number / self.block * self.stride + number % self.block
    }

    /// Returns the number of an element among the selected ones; none if it is not selected.
    pub(crate) fn number_of(&self, element: u64) -> Option<u64> {
        let offset = element.checked_sub(self.start)?;
        let (block, within) = match self.count {
            1 => (0, offset),
            _ => (offset / self.stride, offset % self.stride),
        };
        (block < self.count && within < self.block).then(|| block * self.block + within)
    }

    /// Whether there are elements in both; also where there are too many blocks to find out.
    pub(crate) fn overlaps(&self, other: &AxisSelection) -> bool {
        let (Some(end), Some(other_end)) = (self.end(), other.end()) else {
            return true;
        };
        if self.start >= other_end || other.start >= end {
            return false;
        }
        if self.is_contiguous() && other.is_contiguous() {
            return true;
        }
        let (few, many) = if self.count <= other.count { (self, other) } else { (other, self) };
        let blocks = if few.is_contiguous() { 1 } else { few.count };
        if blocks > MAX_COMPARED {
            return true;
        }
        let length = few.len() / blocks;
        (0..blocks).any(|block| many.has_any(few.start + block * few.stride, length))
    }

    /// Whether one of `length` elements from `first` on is selected.
    fn has_any(&self, first: u64, length: u64) -> bool {
        let last = first + (length - 1);
        if last < self.start {
            return false;
        }
        // The first block that ends behind the first element.
        let block = match self.count {
            1 => 0,
            _ => (first.saturating_sub(self.start + self.block - 1)).div_ceil(self.stride),
        };
        block < self.count && self.start + block * self.stride <= last
    }

    /// Returns how many elements before `limit` are selected.
    pub(crate) fn count_before(&self, limit: u64) -> u64 {
        let length = limit.saturating_sub(self.start);
        if self.block == UNLIMITED || self.is_contiguous() {
            return self.count.saturating_mul(self.block).min(length);
        }
        let (blocks, rest) = (length / self.stride, length % self.stride);
        match blocks < self.count {
            true => blocks * self.block + rest.min(self.block),
            false => self.len(),
        }
    }

    /// Returns the selection of the elements with these numbers; none if they are no regular blocks.
    pub(crate) fn slice(&self, numbers: &Range<u64>) -> Option<AxisSelection> {
        let length = numbers.end - numbers.start;
        let one = |start| AxisSelection { start, stride: 1, count: 1, block: length };
        if self.block == UNLIMITED || self.is_contiguous() {
            return Some(one(self.start + numbers.start));
        }
        let (first, last) = (numbers.start / self.block, (numbers.end - 1) / self.block);
        if first == last {
            return Some(one(self.at(numbers.start)));
        }
        let is_whole =
            numbers.start.is_multiple_of(self.block) && numbers.end.is_multiple_of(self.block);
        let start = self.start + first * self.stride;
        is_whole.then_some(AxisSelection { start, count: length / self.block, ..*self })
    }

    /// Returns where the axis ends if `count` elements are selected of one without limit; none if that has no 64 bits.
    pub(crate) fn end_of(&self, count: u64) -> Option<u64> {
        if count == 0 {
            return Some(0);
        }
        if self.block == UNLIMITED || self.stride == self.block {
            return self.start.checked_add(count);
        }
        let (blocks, rest) = (count / self.block, count % self.block);
        let begin = |block: u64| block.checked_mul(self.stride)?.checked_add(self.start);
        match rest {
            0 => begin(blocks - 1)?.checked_add(self.block),
            rest => begin(blocks)?.checked_add(rest),
        }
    }
}

/// Reads a selection: what it selects of each axis. `None` is everything.
///
/// # Errors
///
/// `unsupported-feature` when it is not a regular hyperslab.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Option<Vec<AxisSelection>>> {
    let kind = cursor.u32()?;
    let version = cursor.u32()?;
    let axes = match (kind, version) {
        (3, _) => return cursor.skip(8).map(|()| None),
        (2, 1) => {
            cursor.skip(8)?;
            read_blocks(cursor)?
        }
        (2, 2 | 3) => {
            let flags = cursor.u8()?;
            let width = match version {
                2 => {
                    cursor.skip(4)?;
                    8
                }
                _ => cursor.u8()?.into(),
            };
            if flags & 1 == 0 {
                return Err(unsupported("a selection is irregular"));
            }
            let axes = read_axes(cursor)?;
            // Without limit is written as the largest number of its width.
            let unlimited = u64::MAX >> (64 - 8 * width.clamp(1, 8));
            let no_limit = |number| if number == unlimited { UNLIMITED } else { number };
            (0..axes)
                .map(|_| {
                    let (start, stride) = (cursor.uint(width)?, cursor.uint(width)?);
                    let (count, block) = (cursor.uint(width)?, cursor.uint(width)?);
                    let (count, block) = (no_limit(count), no_limit(block));
                    Ok(AxisSelection { start, stride, count, block })
                })
                .collect::<Result<_>>()?
        }
        _ => return Err(unsupported("a selection is of single elements, or of an unknown type")),
    };
    for axis in &axes {
        let has_blocks = axis.count > 0 && axis.block > 0 && axis.stride > 0;
        let is_bounded = axis.is_unlimited() || axis.end().is_some();
        let is_apart = axis.count == 1 || axis.block == UNLIMITED || axis.stride >= axis.block;
        if !has_blocks || !is_bounded || !is_apart {
            return Err(cursor.damaged("the blocks of a selection are empty or overlap"));
        }
    }
    Ok(Some(axes))
}

/// Reads a list of blocks, which older versions also write for regular hyperslabs.
fn read_blocks(cursor: &mut Cursor<'_>) -> Result<Vec<AxisSelection>> {
    let axes = read_axes(cursor)? as usize;
    let count = cursor.u32()? as usize;
    let mut corner =
        || -> Result<Vec<u64>> { (0..axes).map(|_| Ok(cursor.u32()?.into())).collect() };
    // Every block is in the file, so a wrong number ends with the bytes.
    let mut blocks = Vec::new();
    for _ in 0..count {
        blocks.push((corner()?, corner()?));
    }
    let regular: Option<Vec<AxisSelection>> = (0..axes)
        .map(|axis| {
            let mut extents: Vec<_> = blocks.iter().map(|(a, b)| (a[axis], b[axis])).collect();
            extents.sort_unstable();
            extents.dedup();
            find_regular(&extents)
        })
        .collect();
    let regular = regular.ok_or_else(|| unsupported("a selection is irregular"))?;
    // As many blocks as there are combinations, each another one, are all combinations.
    blocks.sort_unstable();
    blocks.dedup();
    let combinations = regular.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.count));
    match combinations == Some(count as u64) && blocks.len() == count {
        true => Ok(regular),
        false => Err(unsupported("a selection is irregular")),
    }
}

/// Returns the regular blocks that have these first and last elements, if they are regular.
fn find_regular(extents: &[(u64, u64)]) -> Option<AxisSelection> {
    let &(start, last) = extents.first()?;
    let block = last.checked_sub(start)? + 1;
    let stride = match extents.get(1) {
        Some((second, _)) => second - start,
        None => block,
    };
    let count = extents.len() as u64;
    let is_regular = extents.iter().zip(0..).all(|(&(first, last), number): (_, u64)| {
        first == start + number * stride && last == first + (block - 1)
    });
    is_regular.then_some(AxisSelection { start, stride, count, block })
}

fn read_axes(cursor: &mut Cursor<'_>) -> Result<u32> {
    let axes = cursor.u32()?;
    match axes as usize <= MAX_AXES {
        true => Ok(axes),
        false => Err(cursor.damaged(format_args!("a selection has {axes} dimensions"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn axis() -> impl Strategy<Value = AxisSelection> {
        (0_u64..9, 1_u64..6, 1_u64..6, 0_u64..5).prop_map(|(start, block, count, gap)| {
            AxisSelection { start, stride: block + gap, count, block }
        })
    }

    fn elements(axis: &AxisSelection) -> Vec<u64> {
        let blocks = (0..axis.count).map(|block| axis.start + block * axis.stride);
        blocks.flat_map(|begin| begin..begin + axis.block).collect()
    }

    proptest! {
        #[test]
        fn elements_are_numbered_in_order(axis in axis()) {
            let all = elements(&axis);
            prop_assert_eq!(all.len() as u64, axis.len());
            prop_assert_eq!(axis.end(), Some(all[all.len() - 1] + 1));
            for element in 0..60 {
                let number = all.iter().position(|one| *one == element);
                prop_assert_eq!(axis.number_of(element), number.map(|number| number as u64));
            }
            for (number, element) in all.iter().enumerate() {
                prop_assert_eq!(axis.at(number as u64), *element);
            }
        }

        #[test]
        fn overlaps_are_found(one in axis(), other in axis()) {
            let others = elements(&other);
            let common = elements(&one).iter().any(|element| others.contains(element));
            prop_assert_eq!(one.overlaps(&other), common);
        }

        #[test]
        fn elements_before_a_limit_are_counted(axis in axis(), limit in 0_u64..70) {
            let kept: Vec<u64> = elements(&axis).into_iter().filter(|it| *it < limit).collect();
            let last = kept.last().map_or(0, |last| last + 1);
            prop_assert_eq!(axis.count_before(limit), kept.len() as u64);
            prop_assert_eq!(axis.end_of(kept.len() as u64), Some(last));
        }

        #[test]
        fn slices_are_of_the_same_elements(axis in axis(), first in 0_u64..25, length in 1_u64..9) {
            let all = elements(&axis);
            let numbers = first.min(all.len() as u64 - 1)..(first + length).min(all.len() as u64);
            prop_assume!(!numbers.is_empty());
            if let Some(slice) = axis.slice(&numbers) {
                let wanted = &all[numbers.start as usize..numbers.end as usize];
                prop_assert_eq!(elements(&slice), wanted);
            }
        }
    }
}
