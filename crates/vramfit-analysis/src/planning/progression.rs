//! Numbers at equal distances, or each a multiple of the one before: `1..512`, `8..4096:8`, `8..4096:x2`.

use std::str::FromStr;

use crate::error::{Error, Result};

/// The numbers that may be chosen for a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progression {
    first: u64,
    /// No number is larger.
    last: u64,
    step: Step,
}

/// From one number to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add(u64),
    Multiply(u64),
}

impl FromStr for Progression {
    type Err = Error;

    /// Reads `FIRST..LAST`, `FIRST..LAST:STEP` or `FIRST..LAST:xFACTOR`, ends included.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Error::invalid_argument(format!("`{text}` {why}")).hint(
                "write `1..512`, `8..4096:8` for its multiples of 8, or `8..4096:x2` for powers",
            )
        };
        let number = |text: &str| {
            let number = text.parse::<u64>();
            number.map_err(|_| invalid("has a part that is not a whole number"))
        };
        let (range, step) = text.split_once(':').unwrap_or((text, "1"));
        let (first, last) = range.split_once("..").ok_or_else(|| invalid("is not a range"))?;
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first == 0 || first > last {
            return Err(invalid("is an empty range; it must begin with at least 1"));
        }
        let step = match step.strip_prefix('x') {
            Some(factor) => Step::Multiply(number(factor)?),
            None => Step::Add(number(step)?),
        };
        if matches!(step, Step::Add(0) | Step::Multiply(0 | 1)) {
            return Err(invalid("has a step that leads nowhere"));
        }
        Ok(Progression { first, last, step })
    }
}

impl Progression {
    /// Returns the first number.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last number.
    pub fn last(&self) -> u64 {
        self.multiple_to(self.last, 1).unwrap_or(self.first)
    }

    /// Returns its numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let (last, step) = (self.last, self.step);
        std::iter::successors(Some(self.first), move |number| match step {
            Step::Add(step) => number.checked_add(step),
            Step::Multiply(factor) => number.checked_mul(factor),
        })
        .take_while(move |number| *number <= last)
    }

    /// Returns the largest number that is a multiple of a divisor and at most `limit`.
    pub(super) fn multiple_to(&self, limit: u64, divisor: u64) -> Option<u64> {
        let limit = limit.min(self.last);
        match self.step {
            Step::Multiply(_) => {
                let numbers = self.iter().take_while(|number| *number <= limit);
                numbers.filter(|number| number.is_multiple_of(divisor)).last()
            }
            Step::Add(step) => {
                let (smallest, period) = self.smallest_multiple(step, divisor)?;
                let above = u128::from(limit).checked_sub(smallest)?;
                u64::try_from(smallest + above / period * period).ok()
            }
        }
    }

    /// Returns the smallest number that is a multiple of a divisor and at least `limit`.
    pub(super) fn multiple_from(&self, limit: u64, divisor: u64) -> Option<u64> {
        let number = match self.step {
            Step::Multiply(_) => {
                self.iter().find(|number| *number >= limit && number.is_multiple_of(divisor))
            }
            Step::Add(step) => {
                let (smallest, period) = self.smallest_multiple(step, divisor)?;
                let below = u128::from(limit).saturating_sub(smallest);
                u64::try_from(smallest + below.div_ceil(period) * period).ok()
            }
        };
        number.filter(|number| *number <= self.last)
    }

    /// Returns the smallest number at equal distances that is a multiple of a divisor, and the distance to the next.
    fn smallest_multiple(&self, step: u64, divisor: u64) -> Option<(u128, u128)> {
        let [first, step, divisor] = [self.first, step, divisor].map(i128::from);
        // divisor * factor = first (mod step)
        let (common, inverse) = extended_euclid(divisor, step);
        if first % common != 0 {
            return None;
        }
        let period = step / common;
        let factor = (first / common % period * inverse.rem_euclid(period)) % period;
        let distance = divisor * period;
        let multiple = divisor * factor;
        let missing = (first - multiple).max(0);
        let smallest = multiple + (missing + distance - 1) / distance * distance;
        Some((smallest.unsigned_abs(), distance.unsigned_abs()))
    }
}

/// Returns the greatest common divisor of two numbers, and what the first is multiplied with to give it, up to multiples
/// of the second.
fn extended_euclid(a: i128, b: i128) -> (i128, i128) {
    let ((mut old, mut new), (mut old_factor, mut new_factor)) = ((a, b), (1, 0));
    while new != 0 {
        let quotient = old / new;
        (old, new) = (new, old - quotient * new);
        (old_factor, new_factor) = (new_factor, old_factor - quotient * new_factor);
    }
    (old, old_factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Progression {
        text.parse().expect("a progression")
    }

    #[test]
    fn its_numbers_are_those_of_a_loop() {
        for (text, expected) in [
            ("1..5", vec![1, 2, 3, 4, 5]),
            ("3..=12:4", vec![3, 7, 11]),
            ("8..40:8", vec![8, 16, 24, 32, 40]),
            ("3..50:x2", vec![3, 6, 12, 24, 48]),
            ("7..7:x3", vec![7]),
        ] {
            let numbers = numbers(text);
            assert_eq!(numbers.iter().collect::<Vec<_>>(), expected, "{text}");
            assert_eq!(numbers.last(), *expected.last().expect("some"), "{text}");
            for divisor in 1..9 {
                for limit in 0..60 {
                    let is_multiple = |number: &&u64| number.is_multiple_of(divisor);
                    let multiples = || expected.iter().filter(is_multiple).copied();
                    let to = multiples().filter(|number| *number <= limit).max();
                    let from = multiples().filter(|number| *number >= limit).min();
                    assert_eq!(numbers.multiple_to(limit, divisor), to, "{text} {limit}");
                    assert_eq!(numbers.multiple_from(limit, divisor), from, "{text} {limit}");
                }
            }
        }
    }

    #[test]
    fn what_names_no_numbers_is_refused() {
        for wrong in [
            "1", "1..", "..3", "0..3", "9..3", "1..x", "1..8:0", "1..8:x1", "1..8:x", "1..8:y2",
            "1..8:2:3", "-1..8",
        ] {
            assert!(wrong.parse::<Progression>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let all = numbers("1..18446744073709551615:18446744073709551615");
        assert_eq!(all.multiple_from(2, 1), None);
        assert_eq!(all.last(), 1);
        let powers = numbers("2..18446744073709551615:x2");
        assert_eq!(powers.last(), 1 << 63);
    }
}
