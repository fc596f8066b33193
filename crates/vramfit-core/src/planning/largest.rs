//! The largest number with which a program fits, in few dry runs.
//!
//! The memory of a step grows almost linearly with its batch, so the line through two measured peaks
//! predicts where the limit is reached, and two more dry runs prove it. Where that fails, the rest is halved.

use std::collections::BTreeMap;

use crate::error::Result;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestValue {
    /// The largest number measured that fits, with its peak in bytes.
    pub fits: Option<(u64, u64)>,
    /// The smallest number above it that was measured and does not, with its peak in bytes.
    pub too_large: Option<(u64, u64)>,
    /// Whether a larger number had a larger peak throughout.
    pub is_monotonic: bool,
    /// How many were measured.
    pub trials: u32,
}

/// After this many trials the line is not trusted any more.
const MAX_PREDICTIONS: usize = 5;
/// Factor from the first number to the second: far enough for a slope.
const SECOND_FACTOR: u64 = 4;

/// Searches from `low` to `high`; `measure` is called once for each number.
///
/// # Errors
/// Those of `measure`.
///
/// # Examples
/// ```
/// use vramfit_core::planning::{Measured, largest_value};
///
/// // 100 bytes, and 7 for each row of a batch, of 1,000.
/// let measure = |rows| {
///     let peak_bytes = 100 + 7 * rows;
///     Ok(Measured { peak_bytes, limit_bytes: 1000, fits: peak_bytes <= 1000 })
/// };
/// let found = largest_value(1, 512, measure)?;
/// assert_eq!((found.fits, found.too_large), (Some((128, 996)), Some((129, 1003))));
/// assert_eq!(found.trials, 4);
/// # Ok::<(), vramfit_core::Error>(())
/// ```
pub fn largest_value(
    low: u64,
    high: u64,
    mut measure: impl FnMut(u64) -> Result<Measured>,
) -> Result<LargestValue> {
    let mut seen: BTreeMap<u64, Measured> = BTreeMap::new();
    let mut next = Some(low);
    while let Some(value) = next {
        seen.insert(value, measure(value)?);
        next = next_value(&seen, high);
    }
    let with_peak = |(value, measured): (&u64, &Measured)| (*value, measured.peak_bytes);
    let fits = last_that_fits(&seen);
    let above = seen.range(fits.map_or(0, |value| value + 1)..).next();
    Ok(LargestValue {
        fits: fits
            .and_then(|value| seen.get_key_value(&value))
            .map(with_peak),
        too_large: above.map(with_peak),
        is_monotonic: seen
            .values()
            .is_sorted_by_key(|measured| measured.peak_bytes),
        trials: seen.len() as u32,
    })
}

fn last_that_fits(seen: &BTreeMap<u64, Measured>) -> Option<u64> {
    let mut fitting = seen.iter().filter(|(_, measured)| measured.fits);
    fitting.next_back().map(|(value, _)| *value)
}

/// Returns the number to measure next; none when it is proven which is the largest.
fn next_value(seen: &BTreeMap<u64, Measured>, high: u64) -> Option<u64> {
    // Where not even the smallest fits there is nothing to search.
    let fits = last_that_fits(seen)?;
    let above = seen.range(fits + 1..).next().map(|(value, _)| *value);
    if fits == high || above == Some(fits + 1) {
        return None;
    }
    let last = above.map_or(high, |above| above - 1);
    let guess = match above {
        None if seen.len() == 1 => fits.saturating_mul(SECOND_FACTOR),
        Some(above) if seen.len() >= MAX_PREDICTIONS => fits + (above - fits) / 2,
        _ => predict(seen).unwrap_or(fits.saturating_mul(SECOND_FACTOR)),
    };
    Some(guess.clamp(fits + 1, last))
}

/// Returns the largest number that should fit, going by the line through the two measured numbers whose peaks
/// are nearest to the limit; none where peaks do not grow.
fn predict(seen: &BTreeMap<u64, Measured>) -> Option<u64> {
    let mut nearest: Vec<(&u64, &Measured)> = seen.iter().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn search(high: u64, limit_bytes: u64, peak: impl Fn(u64) -> u64) -> LargestValue {
        largest_value(1, high, |value| {
            Ok(Measured {
                peak_bytes: peak(value),
                limit_bytes,
                fits: peak(value) <= limit_bytes,
            })
        })
        .expect("measuring does not fail")
    }

    #[test]
    fn a_line_takes_four_trials() {
        for slope in [1, 3, 17, 250, 4096] {
            for limit in [10_000, 123_457, 999_999] {
                let found = search(1 << 40, limit, |value| 5000 + slope * value);
                assert_eq!(
                    found.fits.map(|(value, _)| value),
                    Some((limit - 5000) / slope)
                );
                assert!(found.trials <= 4, "{slope} {limit}: {}", found.trials);
                assert!(found.is_monotonic);
            }
        }
    }

    #[test]
    fn the_answer_is_proven_also_where_peaks_have_steps() {
        let found = search(4096, 1 << 20, |value| {
            (value * 1000).next_multiple_of(65536) + value
        });
        let (fits, too_large) = (
            found.fits.expect("one fits"),
            found.too_large.expect("one does not"),
        );
        assert_eq!(fits.0 + 1, too_large.0);
        assert!(fits.1 <= 1 << 20 && too_large.1 > 1 << 20);
    }

    #[test]
    fn the_ends_of_the_range_are_answers() {
        assert_eq!(search(64, 1 << 30, |value| value).fits, Some((64, 64)));
        let none = search(64, 10, |value| 100 + value);
        assert_eq!(
            (none.fits, none.too_large, none.trials),
            (None, Some((1, 101)), 1)
        );
    }

    #[test]
    fn a_peak_that_falls_is_noticed() {
        let found = search(4096, 10_000, |value| {
            if value % 4 == 0 {
                10 * value
            } else {
                30 * value
            }
        });
        assert!(!found.is_monotonic);
    }
}
