//! Statistics of all rows of datasets, in one pass and bounded memory: what normalization needs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use vramfit_base::{Error, ErrorKind, Result};

use crate::hdf5::Scalar;
use crate::inspect::{LabelCount, Value, read_value};
use crate::load::{BatchPoll, Loader, LoaderOptions};

/// Distinct values of a label; a column with more has none.
const MAX_LABELS: usize = 1024;
/// Rows that are read at a time, and bytes that this may be.
const BATCH_ROWS: u64 = 1024;
const BATCH_BYTES: u64 = 8 << 20;
/// How long to wait for a batch before asking again.
const POLL_TIMEOUT: Duration = Duration::from_secs(3600);

/// Statistics of one column: one number for each element of the last axis of a row, or one in all if a row is a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnStatistics {
    /// Rows that were read.
    pub rows: u64,
    /// The shape of a row.
    pub shape: Vec<u64>,
    /// The type of its elements.
    pub dtype: &'static str,
    /// How many finite numbers there are.
    pub count: Vec<u64>,
    /// Their mean; 0 without any.
    pub mean: Vec<f64>,
    /// Their standard deviation: the root of the mean squared distance from the mean.
    pub std: Vec<f64>,
    /// The smallest and the largest of them.
    pub min: Vec<Option<f64>>,
    /// The largest of them.
    pub max: Vec<Option<f64>>,
    /// How many numbers are NaN.
    pub nan: Vec<u64>,
    /// How many numbers are infinite.
    pub infinite: Vec<u64>,
    /// How many rows have each value, if a row is one integer and there are few values.
    pub labels: Option<Vec<LabelCount>>,
    /// Whether these are statistics of unpacked values, where values are packed by the conventions of netCDF (CF).
    pub unpacked: bool,
}

/// What was computed of the datasets of a loader.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetStatistics {
    /// Of each column.
    pub columns: Vec<ColumnStatistics>,
    /// The attributes of the first dataset of each column that say that its values are packed.
    pub packing_attributes: Vec<Vec<&'static str>>,
    /// What a reader should know of files that were not closed.
    pub unclosed_files: Vec<String>,
}

/// Reads all rows that the options select, in the order of the files. `progress` is told how many of how many were read.
///
/// # Errors
/// As [`Loader::open`], and all that reading can fail with.
pub fn compute_statistics(
    options: LoaderOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<DatasetStatistics> {
    let options = LoaderOptions { shuffle: false, batch_size: 1, ..options };
    let probe = Loader::open(options.clone())?;
    let row_bytes: u64 = probe.columns().iter().map(|column| column.sample_bytes() as u64).sum();
    let batch_size = (BATCH_BYTES.min(options.budget.0 / 16) / row_bytes.max(1))
        .clamp(1, BATCH_ROWS)
        .min(probe.rows());
    drop(probe);
    let mut loader = Loader::open(LoaderOptions { batch_size, ..options })?;
    let mut columns: Vec<Accumulator> = loader
        .columns()
        .iter()
        .map(|column| Accumulator::new(column.scalar(), column.shape()))
        .collect();
    let packing_attributes =
        loader.columns().iter().map(|column| column.packing_attributes().to_vec()).collect();
    let (total, unpacked) = (loader.rows(), loader.options().unpack);
    loader.start(0, 0)?;
    let mut done = 0;
    loop {
        let batch = match loader.poll_batch(POLL_TIMEOUT, POLL_TIMEOUT)? {
            BatchPoll::Ready(batch) => batch,
            BatchPoll::Pending { .. } => continue,
            BatchPoll::Finished => break,
        };
        let rows = batch.valid.iter().sum::<u64>();
        for (column, bytes) in columns.iter_mut().zip(&batch.columns) {
            let row_bytes = column.row_bytes();
            column.add(&bytes.bytes()[..rows as usize * row_bytes], rows);
        }
        done += rows;
        progress(done, total);
    }
    if done != total {
        return Err(Error::new(ErrorKind::Internal, format!("{done} of {total} rows were read")));
    }
    Ok(DatasetStatistics {
        columns: columns.into_iter().map(|column| column.finish(unpacked)).collect(),
        packing_attributes,
        unclosed_files: loader.unclosed_files().to_vec(),
    })
}

/// Writes statistics as JSON.
///
/// # Errors
/// None: they are numbers and names.
pub fn serialize_statistics(statistics: &[ColumnStatistics]) -> Result<String> {
    serde_json::to_string(statistics)
        .map_err(|error| Error::new(ErrorKind::Internal, "statistics are no JSON").cause(error))
}

/// The statistics of a column so far.
struct Accumulator {
    scalar: Scalar,
    shape: Vec<u64>,
    rows: u64,
    features: Vec<Feature>,
    /// How many rows have each value, as long as there are few; only where a row is an integer.
    labels: Option<BTreeMap<i128, u64>>,
}

/// The finite numbers of one element of the last axis so far. Mean and squares are of numbers times `2^-exponent`: those of
/// numbers above 1e154 would be infinite, and those below 1e-154 zero.
#[derive(Clone, Debug)]
struct Feature {
    count: u64,
    exponent: i32,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
    min: f64,
    max: f64,
    nan: u64,
    infinite: u64,
}

impl Feature {
    const EMPTY: Feature = Feature {
        count: 0,
        exponent: MIN_EXPONENT,
        mean: 0.0,
        squares: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        nan: 0,
        infinite: 0,
    };

    /// Adds numbers: the mean and the squares of a block are exact to rounding, and those of blocks are combined as by
    /// Chan, Golub and LeVeque, "Algorithms for computing the sample variance" (1983).
    fn add(&mut self, numbers: impl Iterator<Item = f64> + Clone) {
        let (mut count, mut largest) = (0_u64, 0_f64);
        for number in numbers.clone() {
            if number.is_finite() {
                count += 1;
                largest = largest.max(number.abs());
                self.min = self.min.min(number);
                self.max = self.max.max(number);
            } else if number.is_nan() {
                self.nan += 1;
            } else {
                self.infinite += 1;
            }
        }
        if count == 0 {
            return;
        }
        self.set_exponent(exponent(largest).max(self.exponent));
        let scale = power_of_two(-self.exponent);
        let scaled = numbers.filter(|number| number.is_finite()).map(|number| number * scale);
        let mean = scaled.clone().sum::<f64>() / count as f64;
        let distances = scaled.map(|number| number - mean);
        let squares: f64 = distances.map(|distance| distance * distance).sum();
        let total = self.count + count;
        let delta = mean - self.mean;
        let (before, share) = (self.count as f64, count as f64 / total as f64);
        self.squares += squares + delta * delta * before * share;
        self.mean += delta * share;
        self.count = total;
    }

    /// Makes mean and squares those of numbers times another power of two.
    fn set_exponent(&mut self, exponent: i32) {
        let scale = power_of_two(self.exponent - exponent);
        self.mean *= scale;
        self.squares *= scale * scale;
        self.exponent = exponent;
    }

    /// Returns the mean. It lies between the numbers, whatever was rounded.
    fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            _ => (self.mean * power_of_two(self.exponent)).clamp(self.min, self.max),
        }
    }

    fn deviation(&self) -> f64 {
        // The mean of equal numbers may be rounded.
        if self.min >= self.max {
            return 0.0;
        }
        (self.squares / self.count as f64).sqrt() * power_of_two(self.exponent)
    }
}

/// Exponents of two whose powers, and those of their negatives, are normal numbers.
const MIN_EXPONENT: i32 = -1000;
const MAX_EXPONENT: i32 = 1000;

/// Returns the exponent of the power of two that a number is scaled by.
fn exponent(number: f64) -> i32 {
    let biased = (number.to_bits() >> 52) as i32 & 0x7ff;
    (biased - 1023).clamp(MIN_EXPONENT, MAX_EXPONENT)
}

/// Returns a power of two; 0 where it would not be a normal number.
fn power_of_two(exponent: i32) -> f64 {
    match exponent {
        ..-1022 => 0.0,
        _ => f64::from_bits(((exponent + 1023) as u64) << 52),
    }
}

impl Accumulator {
    fn new(scalar: Scalar, shape: Vec<u64>) -> Accumulator {
        let features = shape.last().copied().unwrap_or(1) as usize;
        let is_label = shape.is_empty() && !scalar.is_float();
        Accumulator {
            scalar,
            shape,
            rows: 0,
            features: vec![Feature::EMPTY; features],
            labels: is_label.then(BTreeMap::new),
        }
    }

    fn row_bytes(&self) -> usize {
        self.shape.iter().product::<u64>() as usize * self.scalar.size()
    }

    fn add(&mut self, bytes: &[u8], rows: u64) {
        self.rows += rows;
        let numbers = bytes.chunks_exact(self.scalar.size());
        let mut values = Vec::with_capacity(numbers.len());
        for number in numbers {
            match read_value(self.scalar, number) {
                Value::Integer(integer) => {
                    if let Some(labels) = &mut self.labels {
                        *labels.entry(integer).or_default() += 1;
                    }
                    values.push(integer as f64);
                }
                Value::Real(number) => values.push(number),
            }
        }
        if self.labels.as_ref().is_some_and(|labels| labels.len() > MAX_LABELS) {
            self.labels = None;
        }
        let step = self.features.len();
        for (place, feature) in self.features.iter_mut().enumerate() {
            feature.add(values.iter().copied().skip(place).step_by(step));
        }
    }

    fn finish(self, unpacked: bool) -> ColumnStatistics {
        let of = |each: &dyn Fn(&Feature) -> f64| self.features.iter().map(each).collect();
        let count = |each: &dyn Fn(&Feature) -> u64| self.features.iter().map(each).collect();
        let bound = |each: &dyn Fn(&Feature) -> f64| {
            let features = self.features.iter();
            features.map(|feature| (feature.count > 0).then(|| each(feature))).collect()
        };
        ColumnStatistics {
            rows: self.rows,
            dtype: self.scalar.name(),
            count: count(&|feature| feature.count),
            mean: of(&Feature::mean),
            std: of(&Feature::deviation),
            min: bound(&|feature| feature.min),
            max: bound(&|feature| feature.max),
            nan: count(&|feature| feature.nan),
            infinite: count(&|feature| feature.infinite),
            labels: self.labels.map(|labels| {
                labels.into_iter().map(|(value, rows)| LabelCount { value, rows }).collect()
            }),
            shape: self.shape,
            unpacked,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_together_have_the_statistics_of_all(
            numbers in prop::collection::vec(prop_oneof![
                8 => -1e3_f64..1e3, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY),
            ], 1..200),
            offset in -1e6_f64..1e6,
            exponent in prop::sample::select(vec![-1000, -600, 0, 600, 1000]),
            block in 1_usize..50,
        ) {
            let numbers: Vec<f64> = numbers.iter().map(|number| number + offset).collect();
            let scale = power_of_two(exponent);
            let scaled: Vec<f64> = numbers.iter().map(|number| number * scale).collect();
            let mut feature = Feature::EMPTY;
            scaled.chunks(block).for_each(|block| feature.add(block.iter().copied()));
            let finite: Vec<f64> = numbers.iter().copied().filter(|it| it.is_finite()).collect();
            prop_assert_eq!(feature.count, finite.len() as u64);
            prop_assert_eq!(feature.nan + feature.infinite + feature.count, numbers.len() as u64);
            let count = finite.len().max(1) as f64;
            let mean = finite.iter().sum::<f64>() / count;
            let squares: f64 = finite.iter().map(|number| (number - mean).powi(2)).sum();
            let found = feature.mean() / scale;
            prop_assert!((found - mean).abs() <= 1e-9 * (1.0 + mean.abs()));
            let found = (feature.deviation() / scale).powi(2) * count;
            prop_assert!((found - squares).abs() <= 1e-6 * (1.0 + squares));
        }
    }

    #[test]
    fn blocks_of_any_size_of_numbers_are_combined() {
        let mut feature = Feature::EMPTY;
        for block in [[1e-300, 3e-300], [-f64::MAX, f64::MAX], [5e-324, 0.0], [1.0, 2.0]] {
            feature.add(block.iter().copied());
        }
        assert_eq!((feature.mean(), feature.deviation()), (0.375, f64::MAX / 2.0));
        let mut feature = Feature::EMPTY;
        feature.add([2e-323, 4e-323].into_iter());
        assert_eq!((feature.mean(), feature.deviation()), (3e-323, 1e-323));
    }
}
