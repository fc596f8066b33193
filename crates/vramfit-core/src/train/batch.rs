//! The largest batch that fits, in few tries: each costs a compilation.
//!
//! What a step needs grows nearly in a straight line with the batch, so two tries tell where the limit
//! will be met, and a third says whether that is so. Where the line bends, halving goes on.

use crate::error::Result;

/// What one try found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Rows of the batch.
    pub batch: u64,
    /// Whether it fits.
    pub fits: bool,
    /// The most bytes that were in use at once; of one that does not fit, before it failed.
    pub peak_bytes: u64,
    /// What could have been in use.
    pub limit_bytes: u64,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    /// The largest batch that was tried and fits; none where no batch did.
    pub fits: Option<Tried>,
    /// The smallest batch that was tried and does not fit; none where all rows did.
    pub fails: Option<Tried>,
    /// How many were tried.
    pub tries: u32,
}

/// Two batches that are this near to each other are as good as one.
const NEAR: u64 = 32;
/// How far a search goes beyond what it knows in one step.
const MAX_GROWTH: u64 = 16;

/// Searches, from a batch that people want, up to `most` rows and in `tries` tries.
///
/// # Errors
/// What a try failed with.
pub fn largest_batch(
    wanted: u64,
    most: u64,
    tries: u32,
    mut attempt: impl FnMut(u64) -> Result<Tried>,
) -> Result<Largest> {
    let mut found = Largest {
        fits: None,
        fails: None,
        tries: 0,
    };
    let mut below = None;
    let mut next = Some(wanted.clamp(1, most));
    while let Some(batch) = next.filter(|_| found.tries < tries) {
        let tried = attempt(batch)?;
        found.tries += 1;
        if tried.fits {
            below = found.fits.replace(tried);
        } else {
            found.fails = Some(tried);
        }
        next = following(&found, below, most);
    }
    Ok(found)
}

/// Returns the batch to try next; none where the answer is near enough.
fn following(found: &Largest, below: Option<Tried>, most: u64) -> Option<u64> {
    let (low, high) = match (found.fits, found.fails) {
        (None, None) => return None,
        (None, Some(fails)) => {
            return (fails.batch > 1).then(|| rounded((fails.batch / 4).max(1), 0));
        }
        (Some(fits), None) if fits.batch == most => return None,
        (Some(fits), None) => (fits, most + 1),
        (Some(fits), Some(fails)) => (fits, fails.batch),
    };
    if high - low.batch <= (low.batch / NEAR).max(1) {
        return None;
    }
    // Far apart, half way is that of their ratio: 64 between 8 and 512.
    let middle = match high / low.batch {
        0..4 => low.batch + (high - low.batch) / 2,
        _ => ((low.batch as f64) * (high as f64)).sqrt() as u64,
    };
    let guess = match below {
        Some(other) => along(other, low),
        // One point says only that twice the batch needs no more than twice the memory.
        None => low.limit_bytes.saturating_mul(low.batch) / low.peak_bytes.max(1),
    };
    let guess = guess.min(low.batch.saturating_mul(MAX_GROWTH));
    // Where the limit is said to be reached, the next one that would matter has to be seen to fail.
    let guess = guess.max(low.batch + (low.batch / NEAR).max(1));
    let is_between = |batch: &u64| (low.batch + 1..high).contains(batch);
    let furthest = Some(most).filter(|most| guess >= *most).filter(is_between);
    let guess = Some(rounded(guess, low.batch)).filter(is_between);
    Some(furthest.or(guess).unwrap_or(match found.fails {
        Some(_) => rounded(middle, low.batch),
        None => low.batch.saturating_mul(2).min(most),
    }))
}

/// Returns where a line through two points meets the limit, a little before it.
fn along(one: Tried, other: Tried) -> u64 {
    let (low, high) = match one.batch < other.batch {
        true => (one, other),
        false => (other, one),
    };
    let rows = (high.batch - low.batch) as f64;
    let rise = high.peak_bytes.saturating_sub(low.peak_bytes) as f64;
    let room = high.limit_bytes.saturating_sub(high.peak_bytes) as f64;
    if rise <= 0.0 {
        // Nothing grows with the batch yet, so there is no line.
        return high.batch.saturating_mul(MAX_GROWTH);
    }
    high.batch
        .saturating_add((room / rise * rows * 0.995) as u64)
}

/// Rounds down to a number that people would choose, where that is still above `low`.
fn rounded(batch: u64, low: u64) -> u64 {
    let round = match batch {
        0 => 1,
        1..32 => return batch,
        32..256 => batch - batch % 4,
        _ => batch - batch % 16,
    };
    if round > low { round } else { batch }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    /// Searches on a card of a size, with a step that needs so much for a batch.
    fn search(
        wanted: u64,
        most: u64,
        limit: u64,
        needs: impl Fn(u64) -> u64,
    ) -> (Largest, Vec<u64>) {
        let mut asked = Vec::new();
        let found = largest_batch(wanted, most, 10, |batch| {
            asked.push(batch);
            let peak = needs(batch);
            Ok(Tried {
                batch,
                fits: peak <= limit,
                peak_bytes: peak.min(limit),
                limit_bytes: limit,
            })
        });
        (found.expect("no try fails"), asked)
    }

    /// The batch that a whole search of every number would find.
    fn truth(most: u64, limit: u64, needs: impl Fn(u64) -> u64) -> u64 {
        (1..=most)
            .take_while(|batch| needs(*batch) <= limit)
            .last()
            .unwrap_or(0)
    }

    #[test]
    fn what_grows_in_a_straight_line_takes_six_tries_at_most() {
        let needs = |batch| 500_000 + 1_234 * batch;
        for wanted in [1, 64, 256, 4_000] {
            let (found, asked) = search(wanted, 1_000_000, 10_000_000, needs);
            let best = truth(1_000_000, 10_000_000, needs);
            let batch = found.fits.expect("something fits").batch;
            assert!(batch <= best && batch >= best - best / NEAR, "{asked:?}");
            assert!(asked.len() <= 6, "{asked:?}");
        }
    }

    #[test]
    fn what_bends_is_found_within_ten_tries() {
        type Needs = fn(u64) -> u64;
        let curves: [Needs; 4] = [
            |batch| 100 * batch + batch * batch / 8,
            |batch| 1_000_000 + 5_000 * batch.next_multiple_of(512),
            |batch| {
                if batch > 700 {
                    9_000_000 + batch
                } else {
                    1_000 * batch
                }
            },
            |batch| 20_000 * (batch as f64).sqrt() as u64,
        ];
        for (at, needs) in curves.into_iter().enumerate() {
            for wanted in [1, 256, 100_000] {
                let (found, asked) = search(wanted, 200_000, 8_000_000, needs);
                let best = truth(200_000, 8_000_000, needs);
                let batch = found.fits.map_or(0, |tried| tried.batch);
                assert!(batch <= best, "{at} {asked:?}");
                assert!(batch >= best - best / 8, "{at}, best {best}: {asked:?}");
                assert!(asked.len() <= 10);
            }
        }
    }

    #[test]
    fn it_ends_at_the_rows_there_are_and_at_one() {
        let (found, asked) = search(64, 1_000, u64::MAX / 2, |batch| 10 * batch);
        assert_eq!(found.fits.expect("all fit").batch, 1_000);
        assert_eq!(found.fails, None);
        assert_eq!(asked, [64, 1_000]);

        let (found, asked) = search(8, 1_000, 100, |_| 101);
        assert_eq!(found.fits, None);
        assert_eq!(found.fails.expect("none fits").batch, 1);
        assert_eq!(asked, [8, 2, 1]);
    }

    #[test]
    fn a_try_that_fails_ends_the_search() {
        let broken = || Error::new(ErrorKind::GpuNotUsed, "the program never used the GPU");
        let error = largest_batch(8, 64, 10, |_| Err(broken())).expect_err("it fails");
        assert_eq!(error.kind(), ErrorKind::GpuNotUsed);
    }
}
