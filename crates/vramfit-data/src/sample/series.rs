//! Series: rows that belong together in time, which windows do not cross.

use std::ops::Range;

/// Some of the rows of all segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The rows that each column has, where columns have the same number of them, and otherwise the most that one has.
    pub rows: Range<u64>,
    /// How many rows each column has, from the first on, if they differ.
    pub lengths: Option<Box<[u64]>>,
}

impl Series {
    /// Returns how many rows a column has.
    pub fn length(&self, column: usize) -> u64 {
        match &self.lengths {
            Some(lengths) => lengths[column],
            None => self.rows.end - self.rows.start,
        }
    }
}

/// All series, and how many samples each has.
#[derive(Clone, Debug, Default)]
pub struct SeriesTable {
    series: Vec<Series>,
    /// How many samples come before each series, and then the total.
    first_samples: Vec<u64>,
}

impl SeriesTable {
    /// Makes the table; `count` returns how many samples a series has.
    pub fn new(series: Vec<Series>, count: impl Fn(&Series) -> u64) -> SeriesTable {
        let mut total = 0;
        let mut first_samples = Vec::with_capacity(series.len() + 1);
        first_samples.push(0);
        for one in &series {
            total += count(one);
            first_samples.push(total);
        }
        SeriesTable { series, first_samples }
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.first_samples.last().copied().unwrap_or(0)
    }

    /// Returns the series, in the order of their rows.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Returns the samples of a series.
    pub fn samples_of(&self, number: usize) -> Range<u64> {
        self.first_samples[number]..self.first_samples[number + 1]
    }

    /// Returns the series of a sample, and how many others of it come before the sample.
    #[inline]
    pub fn find(&self, sample: u64) -> (&Series, u64) {
        let number = self.first_samples.partition_point(|&first| first <= sample) - 1;
        (&self.series[number], sample - self.first_samples[number])
    }

    /// Returns in how many series at most `samples` consecutive samples are.
    pub fn max_series_of(&self, samples: u64) -> u64 {
        // The samples before a series that begins with the first of them are the best case.
        let mut most = 0;
        let mut first = 0;
        for last in 0..self.series.len() {
            let begin = self.first_samples[last];
            // One sample of the last series, and at least one of the first.
            while first < last && begin + 1 > self.first_samples[first + 1] + samples - 1 {
                first += 1;
            }
            if self.first_samples[last + 1] > begin {
                most = most.max((last - first + 1) as u64);
            }
        }
        most
    }

    /// Returns the bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let lengths = |one: &Series| one.lengths.as_ref().map_or(0, |them| them.len() * 8);
        let series: usize = self.series.iter().map(|one| size_of::<Series>() + lengths(one)).sum();
        (series + self.first_samples.len() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn samples_are_found_in_their_series(lengths in prop::collection::vec(0_u64..6, 1..20)) {
            let mut start = 0;
            let series = lengths.iter().map(|length| {
                let rows = start..start + length;
                start = rows.end;
                Series { rows, lengths: None }
            });
            let table = SeriesTable::new(series.collect(), |one| one.length(0));
            prop_assert_eq!(table.samples(), lengths.iter().sum::<u64>());
            let owners: Vec<usize> = (lengths.iter().enumerate())
                .flat_map(|(number, length)| vec![number; *length as usize])
                .collect();
            for (sample, owner) in owners.iter().enumerate() {
                let (series, at) = table.find(sample as u64);
                prop_assert_eq!(series, &table.series()[*owner]);
                prop_assert_eq!(series.rows.start + at, sample as u64);
            }
            for count in 1..=owners.len() {
                let most = owners.windows(count).map(|part| {
                    let mut part = part.to_vec();
                    part.dedup();
                    part.len() as u64
                });
                // Series without samples lie between the others and may be counted.
                prop_assert!(most.max().unwrap() <= table.max_series_of(count as u64));
            }
        }
    }
}
