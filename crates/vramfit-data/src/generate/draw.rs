//! Random numbers of a row: integers, so that every machine gets the same.
//!
//! A row is a pure function of seed, kind and number. Nothing here uses the mathematical library, whose
//! last digits differ from system to system: numbers near the normal distribution are sums of uniform
//! ones, in units of 1/1024.

use crate::splitmix::{MixKey, below};

/// What 1.0 is in the units of [`Draws::normal`].
pub(super) const UNIT: i64 = 1024;

/// The numbers of one row, one after the other.
#[derive(Debug)]
pub(super) struct Draws {
    key: MixKey,
    counter: u64,
}

impl Draws {
    /// Returns the numbers of a row; `kind` keeps those of two kinds of data apart.
    pub(super) fn new(seed: u64, kind: u64, row: u64) -> Self {
        Draws { key: MixKey::new(&[seed, kind, row]), counter: 0 }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.key.at(self.counter)
    }

    /// Returns a number of `0..bound`, all equally likely.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        below(self.next(), bound)
    }

    /// Says yes nine times out of ten.
    #[inline]
    pub(super) fn bernoulli_90(&mut self) -> bool {
        self.below(10) > 0
    }

    /// Returns a number of mean 0 and variance 1, in units of 1/1024: a sum of four uniform numbers,
    /// which is near the normal distribution but ends at 3.5.
    #[inline]
    pub(super) fn normal(&mut self) -> i64 {
        let bits = self.next();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        // The mean of the sum is 4 · 32767.5, its deviation 37837; 1774 / 65536 makes 1024 of that.
        ((sum as i64 - 131_070) * 1774 + 32_768) >> 16
    }
}

/// Returns 1 or -1 by the Walsh function `number` at `at`: any two of 16 such functions differ at half of
/// every 16 places, so patterns made of them are as far apart as can be.
#[inline]
pub(super) fn walsh(number: u64, at: u64) -> i64 {
    1 - 2 * i64::from((number & at).count_ones() & 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_mean_0_and_variance_1_and_hardly_a_bias() {
        let mut draws = Draws::new(1, 2, 3);
        let numbers: Vec<f64> = (0..1_000_000).map(|_| draws.normal() as f64 / 1024.0).collect();
        let mean = numbers.iter().sum::<f64>() / 1e6;
        let variance = numbers.iter().map(|x| x * x).sum::<f64>() / 1e6;
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((variance - 1.0).abs() < 0.005, "{variance}");
        assert!(numbers.iter().all(|x| x.abs() < 3.5));
    }

    #[test]
    fn rows_seeds_and_kinds_draw_different_numbers() {
        let first = |seed, kind, row| Draws::new(seed, kind, row).next();
        let all = [first(0, 1, 0), first(1, 1, 0), first(0, 2, 0), first(0, 1, 1)];
        for (at, number) in all.iter().enumerate() {
            assert!(!all[..at].contains(number));
        }
        assert_eq!(first(42, 1, 7), 17_022_830_688_417_579_753);
    }

    #[test]
    fn patterns_differ_at_half_of_the_places() {
        for a in 0..16 {
            for b in 0..a {
                let same = (0..16).filter(|&at| walsh(a, at) == walsh(b, at)).count();
                assert_eq!(same, 8);
            }
        }
    }
}
