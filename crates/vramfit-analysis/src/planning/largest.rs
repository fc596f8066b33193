//! The largest number with which a program fits, in few dry runs.
//!
//! The memory of a step grows almost linearly with its batch, so the line through two measured peaks
//! predicts where the limit is reached, and two more dry runs prove it. Where that fails, the rest is halved.
//! Programs reject numbers, mostly those that they cannot divide: then multiples of the greatest common divisor of
//! the accepted ones are tried, and where some of these are rejected, too, those of high powers of two.

use std::collections::BTreeMap;

use super::progression::Progression;

/// What a dry run with one number has measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The peak in bytes, also of what does not fit.
    pub peak_bytes: u64,
    /// What there is.
    pub limit_bytes: u64,
    /// Whether it fits.
    pub fits: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargestNumber {
    /// The largest number measured that fits, with its peak in bytes.
    pub fits: Option<(u64, u64)>,
    /// The smallest number above it that was measured and does not, with its peak in bytes.
    pub too_large: Option<(u64, u64)>,
    /// Whether of all that were measured each larger number had at least the peak of the smaller ones; `None`
    /// where only one was measured.
    pub is_monotonic: Option<bool>,
    /// Numbers that the program rejected, each with its error.
    pub rejected: BTreeMap<u64, String>,
    /// Whether no number between the two is left that the program may accept.
    pub is_proven: bool,
    /// How many dry runs there were.
    pub trials: u32,
}

/// After this many measurements the line is not trusted any more.
const MAX_PREDICTIONS: usize = 5;
/// Factor from the first number to the second: far enough for a slope.
const SECOND_FACTOR: u64 = 4;
/// A program that rejects more numbers than this has a rule that is not found.
const MAX_REJECTED: usize = 24;
/// What the first number that a program accepts is looked for among the multiples of.
const DIVISORS: &[u64] =
    &[2, 4, 8, 16, 32, 64, 128, 256, 3, 6, 12, 24, 48, 96, 5, 10, 20, 40, 80, 7, 14, 28];

/// A search, number by number: [`next_number`](LargestSearch::next_number) says which to measure, and
/// [`add_measured`](LargestSearch::add_measured) takes what was measured.
///
/// # Examples
/// ```
/// use vramfit_analysis::planning::{LargestSearch, Measured, Progression};
///
/// // 100 bytes, and 7 for each row of a batch, of 1,000.
/// let mut search = LargestSearch::new("1..512".parse::<Progression>()?);
/// while let Some(rows) = search.next_number() {
///     let peak_bytes = 100 + 7 * rows;
///     let measured = Measured { peak_bytes, limit_bytes: 1000, fits: peak_bytes <= 1000 };
///     search.add_measured(rows, measured);
/// }
/// let found = search.found();
/// assert_eq!((found.fits, found.too_large), (Some((128, 996)), Some((129, 1003))));
/// assert_eq!((found.is_proven, found.trials), (true, 4));
/// # Ok::<(), vramfit_analysis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LargestSearch {
    numbers: Progression,
    measured: BTreeMap<u64, Measured>,
    rejected: BTreeMap<u64, String>,
}

impl LargestSearch {
    /// Begins a search among these numbers.
    pub fn new(numbers: Progression) -> Self {
        LargestSearch { numbers, measured: BTreeMap::new(), rejected: BTreeMap::new() }
    }

    /// Takes what the dry run with a number has measured.
    pub fn add_measured(&mut self, number: u64, measured: Measured) {
        self.measured.insert(number, measured);
    }

    /// Takes the error with which the program rejected a number.
    pub fn add_rejected(&mut self, number: u64, error: String) {
        self.rejected.insert(number, error);
    }

    /// Returns how many dry runs there were.
    pub fn trials(&self) -> u32 {
        (self.measured.len() + self.rejected.len()) as u32
    }

    /// Returns what was found so far.
    pub fn found(&self) -> LargestNumber {
        let fits = self.largest_that_fits();
        let peak_of = |number| (number, self.measured[&number].peak_bytes);
        let peaks = self.measured.values().map(|measured| measured.peak_bytes);
        LargestNumber {
            fits: fits.map(peak_of),
            too_large: self.smallest_too_large(fits.unwrap_or(0)),
            is_monotonic: (self.measured.len() > 1).then(|| peaks.is_sorted()),
            rejected: self.rejected.clone(),
            is_proven: self.is_proven(),
            trials: self.trials(),
        }
    }

    /// Returns `true` if no number between the largest that fits and the next that was measured can be accepted.
    fn is_proven(&self) -> bool {
        let Some(fits) = self.largest_that_fits() else {
            return false;
        };
        let above = self.smallest_too_large(fits);
        let end = above.map_or(self.numbers.last().saturating_add(1), |(number, _)| number);
        self.next_number().is_none() && self.nearest(fits + 1, self.divisor(), fits, end).is_none()
    }

    /// Returns the number to measure next; none when nothing is left to find.
    pub fn next_number(&self) -> Option<u64> {
        if self.rejected.len() >= MAX_REJECTED {
            return None;
        }
        if self.measured.is_empty() {
            return self.first();
        }
        // Where not even the smallest fits there is nothing to search.
        let fits = self.largest_that_fits()?;
        let above = self.smallest_too_large(fits).map(|(number, _)| number);
        let end = above.unwrap_or(self.numbers.last().saturating_add(1));
        let divisor = self.divisor();
        let target = self.target(fits, above).max(fits + 1);
        // The first multiple of what the program accepts that it rejects nevertheless.
        let barrier = self
            .rejected
            .range(fits..end)
            .map(|(number, _)| *number)
            .find(|number| number.is_multiple_of(divisor));
        match barrier {
            None => self
                .nearest(target, divisor, fits, end)
                .or_else(|| self.between_multiples(divisor, fits, end)),
            Some(barrier) => self.roundest(divisor, fits, barrier).or_else(|| {
                let beyond = self.roundest(divisor, barrier, end.min(target.saturating_mul(2)));
                beyond.filter(|number| !self.rejected.contains_key(number))
            }),
        }
    }

    /// Returns the number at which the limit should be reached.
    fn target(&self, fits: u64, above: Option<u64>) -> u64 {
        let far = fits.saturating_mul(SECOND_FACTOR);
        match above {
            None if self.measured.len() == 1 => far,
            Some(above) if self.measured.len() >= MAX_PREDICTIONS => fits + (above - fits) / 2,
            _ => self.predict().unwrap_or(far),
        }
    }

    /// Returns the first number, or where it was rejected the next that may be accepted.
    fn first(&self) -> Option<u64> {
        let first = self.numbers.first();
        let divisors = [1].iter().chain(DIVISORS);
        divisors
            .filter_map(|divisor| self.numbers.multiple_from(first, *divisor))
            .find(|number| !self.rejected.contains_key(number))
    }

    /// Returns the multiple nearest to a target between two numbers, below it if there is one.
    fn nearest(&self, target: u64, divisor: u64, after: u64, before: u64) -> Option<u64> {
        let last = target.min(before.saturating_sub(1));
        let below = self.numbers.multiple_to(last, divisor);
        below.filter(|number| *number > after).or_else(|| {
            let above = self.numbers.multiple_from(target, divisor);
            above.filter(|number| *number < before)
        })
    }

    /// Returns the number between two others that is a multiple of the divisor and of the highest power of two.
    fn roundest(&self, divisor: u64, after: u64, before: u64) -> Option<u64> {
        let last = before.checked_sub(1)?;
        let powers = (0..divisor.leading_zeros()).rev();
        let mut multiples =
            powers.filter_map(|power| self.numbers.multiple_to(last, divisor << power));
        multiples.find(|number| *number > after)
    }

    /// Returns a number between multiples of the divisor that would show a smaller one, unless a number like it was
    /// rejected.
    fn between_multiples(&self, divisor: u64, after: u64, before: u64) -> Option<u64> {
        let smaller = prime_factors(divisor).into_iter().map(|prime| divisor / prime);
        let is_open = |smaller: &u64| {
            let mut rejected = self.rejected.keys();
            !rejected
                .any(|number| number.is_multiple_of(*smaller) && !number.is_multiple_of(divisor))
        };
        smaller.filter(is_open).find_map(|smaller| self.nearest(after + 1, smaller, after, before))
    }

    /// Returns what all accepted numbers are multiples of, where some number was rejected.
    fn divisor(&self) -> u64 {
        match self.rejected.is_empty() {
            true => 1,
            false => self.measured.keys().copied().fold(0, greatest_common_divisor),
        }
    }

    fn largest_that_fits(&self) -> Option<u64> {
        let mut fitting = self.measured.iter().filter(|(_, measured)| measured.fits);
        fitting.next_back().map(|(number, _)| *number)
    }

    fn smallest_too_large(&self, fits: u64) -> Option<(u64, u64)> {
        let mut above = self.measured.range(fits + 1..);
        above.next().map(|(number, measured)| (*number, measured.peak_bytes))
    }

    /// Returns the largest number that should fit, going by the line through the two measured numbers whose peaks
    /// are nearest to the limit; none where peaks do not grow.
    fn predict(&self) -> Option<u64> {
        let mut nearest: Vec<(&u64, &Measured)> = self.measured.iter().collect();
        nearest.sort_by_key(|(_, measured)| measured.peak_bytes.abs_diff(measured.limit_bytes));
        let [(a, at_a), (b, at_b), ..] = nearest[..] else {
            return None;
        };
        let slope = (at_a.peak_bytes as f64 - at_b.peak_bytes as f64) / (*a as f64 - *b as f64);
        if slope <= 0.0 {
            return None;
        }
        let spare = at_a.limit_bytes as f64 - at_a.peak_bytes as f64;
        Some((*a as f64 + spare / slope).floor().max(0.0) as u64)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => greatest_common_divisor(b, a % b),
    }
}

/// Returns the prime factors of a number, each once.
fn prime_factors(mut number: u64) -> Vec<u64> {
    let mut primes = Vec::new();
    let mut factor = 2;
    while factor * factor <= number {
        if number.is_multiple_of(factor) {
            primes.push(factor);
            while number.is_multiple_of(factor) {
                number /= factor;
            }
        }
        factor += 1;
    }
    if number > 1 {
        primes.push(number);
    }
    primes
}

#[cfg(test)]
mod tests;
