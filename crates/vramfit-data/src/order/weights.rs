//! Weighted sampling with replacement: an epoch draws as many rows as there are, each as often as its weight says.
//!
//! The total of all weights is divided into as many equal parts as an epoch has rows, and one number is drawn in each
//! (stratified sampling). The row at a number is the one whose weights, summed up in the order of the file, reach it. So
//! the draws of an epoch are in the order of the file, can be counted in any range, and are shuffled as rows are; and
//! a row is drawn as often as its weight says, up to one draw more or less where independent draws would vary by
//! the root of that.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

use super::Purpose;
use crate::splitmix::MixKey;

/// The weights of the rows of an order. Saved ones have their number and a hash of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowWeights {
    count: u64,
    hash: u64,
    #[serde(skip)]
    table: Arc<WeightTable>,
}

/// For each row the weights up to it, and for some draws the first row that they can have.
#[derive(Debug, Default)]
struct WeightTable {
    sums: Vec<f64>,
    starts: Vec<u64>,
}

/// Draws for each start: a search among all rows would take longer than reading one.
const DRAWS_PER_START: u64 = 32;

impl WeightTable {
    fn new(sums: Vec<f64>) -> WeightTable {
        let mut table = WeightTable { sums, starts: Vec::new() };
        let mut row = 0;
        for draw in (0..table.sums.len() as u64).step_by(DRAWS_PER_START as usize) {
            let number = table.number(draw as f64);
            while table.sums[row] <= number {
                row += 1;
            }
            table.starts.push(row as u64);
        }
        table
    }

    /// Returns the sum of all weights.
    fn total(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    /// Returns the part of the total that belongs to one draw.
    fn part(&self) -> f64 {
        self.total() / self.sums.len() as f64
    }

    /// Returns the number so many parts from the beginning; it grows with them, also where it is rounded.
    fn number(&self, parts: f64) -> f64 {
        // Rounding must not reach the end, which is no row's.
        (parts * self.part()).min(self.total().next_down())
    }

    /// Returns the row of a number that was drawn.
    fn row_of(&self, draw: u64, number: f64) -> u64 {
        let place = (draw / DRAWS_PER_START) as usize;
        let first = self.starts[place] as usize;
        let last = self.starts.get(place + 1).map_or(self.sums.len() - 1, |last| *last as usize);
        (first + self.sums[first..=last].partition_point(|&sum| sum <= number)) as u64
    }
}

impl RowWeights {
    /// Sums up weights.
    ///
    /// # Errors
    /// `invalid-argument` when one is negative, NaN or infinite, or all are 0.
    pub(super) fn new(weights: impl Iterator<Item = (u64, f64)>) -> Result<RowWeights> {
        let (mut sum, mut hash) = (0.0, 0);
        let mut sums = Vec::with_capacity(weights.size_hint().0);
        for (row, weight) in weights {
            if !(weight >= 0.0 && weight.is_finite()) {
                return Err(Error::invalid_argument(format!(
                    "the weight of sample {row} is {weight}, but must be a number of 0 or more"
                )));
            }
            sum += weight;
            hash = MixKey::new(&[hash, weight.to_bits()]).at(0);
            sums.push(sum);
        }
        if !(sum > 0.0 && sum.is_finite()) {
            let what = if sum > 0.0 { "have an infinite sum" } else { "are all 0" };
            return Err(Error::invalid_argument(format!("the weights of the samples {what}")));
        }
        let table = Arc::new(WeightTable::new(sums));
        Ok(RowWeights { count: table.sums.len() as u64, hash, table })
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// Returns the draws of an epoch.
    pub(super) fn draws(&self, seed: u64, epoch: u64) -> Draws {
        let key = MixKey::new(&[seed, epoch, Purpose::Weights as u64]);
        Draws { table: Arc::clone(&self.table), key }
    }
}

impl PartialEq for RowWeights {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.hash) == (other.count, other.hash)
    }
}

impl Eq for RowWeights {}

/// The draws of an epoch, in the order of their rows.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    table: Arc<WeightTable>,
    key: MixKey,
}

impl Draws {
    /// Returns the number that is drawn in a part of the total: no less than the one before it.
    fn number(&self, draw: u64) -> f64 {
        const FRACTION: f64 = 1.0 / (1_u64 << 53) as f64;
        let fraction = (self.key.at(draw) >> 11) as f64 * FRACTION;
        self.table.number(draw as f64 + fraction)
    }

    /// Returns the row of a draw.
    pub(super) fn select(&self, draw: u64) -> u64 {
        self.table.row_of(draw, self.number(draw))
    }

    /// Returns how many draws have a row before `row`.
    pub(super) fn rank(&self, row: u64) -> u64 {
        let sums = &self.table.sums;
        let Some(before) = (row as usize).checked_sub(1).and_then(|row| sums.get(row)) else {
            return 0;
        };
        let count = sums.len() as u64;
        let mut draw = ((before / self.table.part()) as u64).min(count);
        // By one at most, but for rounding.
        while draw > 0 && self.number(draw - 1) >= *before {
            draw -= 1;
        }
        while draw < count && self.number(draw) < *before {
            draw += 1;
        }
        draw
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weigh(weights: &[f64]) -> Result<RowWeights> {
        RowWeights::new((0..).zip(weights.iter().copied()))
    }

    proptest! {
        #[test]
        fn draws_are_those_of_the_weights_and_can_be_counted(
            weights in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1.0, 1e-12..1e12], 1..150),
            seed: u64,
            epoch in 0_u64..5,
        ) {
            let Ok(all) = weigh(&weights) else {
                prop_assert!(weights.iter().all(|weight| *weight == 0.0));
                return Ok(());
            };
            let draws = all.draws(seed, epoch);
            let rows: Vec<u64> = (0..weights.len() as u64).map(|draw| draws.select(draw)).collect();
            prop_assert!(rows.is_sorted());
            let total: f64 = weights.iter().sum();
            for (row, weight) in weights.iter().enumerate() {
                let count = rows.iter().filter(|drawn| **drawn == row as u64).count() as f64;
                let expected = weight / total * weights.len() as f64;
                prop_assert!((count - expected).abs() < 2.0, "{count} for {expected}");
                prop_assert!(*weight > 0.0 || count == 0.0);
                let before = rows.iter().filter(|drawn| **drawn < row as u64).count() as u64;
                prop_assert_eq!(draws.rank(row as u64), before);
            }
            prop_assert_eq!(draws.rank(weights.len() as u64), weights.len() as u64);
        }
    }

    #[test]
    fn weights_that_are_none_are_errors() {
        let error = |weights: &[f64]| weigh(weights).unwrap_err().message().to_owned();
        assert_eq!(error(&[0.0, 0.0]), "the weights of the samples are all 0");
        assert_eq!(error(&[1e308, 1e308]), "the weights of the samples have an infinite sum");
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            let message = error(&[1.0, weight]);
            assert!(message.starts_with("the weight of sample 1 is "), "{message}");
        }
    }

    #[test]
    fn a_mean_over_epochs_is_the_weight() {
        let all = weigh(&[1.0, 2.0, 0.5, 0.25, 7.0]).unwrap();
        let mut counts = [0_u32; 5];
        for epoch in 0..20_000 {
            let draws = all.draws(3, epoch);
            (0..5).for_each(|draw| counts[draws.select(draw) as usize] += 1);
        }
        for (count, weight) in counts.iter().zip([1.0, 2.0, 0.5, 0.25, 7.0]) {
            // Draws of a row vary by less than 1, so their sum by less than the root of 20 000: six of these.
            let expected = weight / 10.75 * 100_000.0;
            assert!((f64::from(*count) - expected).abs() < 6.0 * 141.5, "{counts:?}");
        }
    }
}
