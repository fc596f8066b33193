//! A set of rows as ranges in ascending order, with rank and select.

use std::ops::Range;

/// Ranges of rows in ascending order, which neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRanges {
    starts: Vec<u64>,
    /// How many rows of the set come before each range.
    before: Vec<u64>,
    len: u64,
}

impl RowRanges {
    /// Adds rows to the end, of which those that the last range has already are left out. They must not begin before
    /// the last range.
    pub fn push(&mut self, rows: Range<u64>) {
        if rows.is_empty() {
            return;
        }
        if let (Some(&start), Some(&before)) = (self.starts.last(), self.before.last()) {
            debug_assert!(rows.start >= start, "ranges are added in ascending order");
            let end = start + (self.len - before);
            if rows.start <= end {
                self.len += rows.end.saturating_sub(end);
                return;
            }
        }
        self.starts.push(rows.start);
        self.before.push(self.len);
        self.len += rows.end - rows.start;
    }

    /// Returns how many rows are in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the ranges.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        (0..self.starts.len()).map(|number| self.range(number))
    }

    /// Returns how many rows of the set come before `row`.
    #[inline]
    pub fn rank(&self, row: u64) -> u64 {
        let Some(number) = self.starts.partition_point(|&start| start <= row).checked_sub(1) else {
            return 0;
        };
        let range = self.range(number);
        self.before[number] + row.min(range.end) - range.start
    }

    /// Returns the row of the set that has `rank` others before it; `rank` is less than [`len`](Self::len).
    #[inline]
    pub fn select(&self, rank: u64) -> u64 {
        let number = self.before.partition_point(|&before| before <= rank) - 1;
        self.starts[number] + (rank - self.before[number])
    }

    /// Returns the bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        (self.starts.len() * 2 * size_of::<u64>()) as u64
    }

    fn range(&self, number: usize) -> Range<u64> {
        let end = self.before.get(number + 1).copied().unwrap_or(self.len);
        self.starts[number]..self.starts[number] + (end - self.before[number])
    }
}

impl FromIterator<Range<u64>> for RowRanges {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut all = RowRanges::default();
        ranges.into_iter().for_each(|range| all.push(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ranges in prop::collection::vec((0_u64..200, 0_u64..20), 0..20)) {
            let mut ranges: Vec<Range<u64>> =
                ranges.iter().map(|(start, length)| *start..start + length).collect();
            ranges.sort_by_key(|range| range.start);
            let set: BTreeSet<u64> = ranges.iter().cloned().flatten().collect();
            let all: RowRanges = ranges.into_iter().collect();
            prop_assert_eq!(all.len(), set.len() as u64);
            prop_assert_eq!(all.is_empty(), set.is_empty());
            prop_assert!(all.iter().flatten().eq(set.iter().copied()));
            for (rank, row) in set.iter().enumerate() {
                prop_assert_eq!(all.select(rank as u64), *row);
            }
            for row in 0..230 {
                prop_assert_eq!(all.rank(row), set.range(..row).count() as u64);
            }
            let ranges: Vec<_> = all.iter().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
