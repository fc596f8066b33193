//! Search for the largest batch that fits, in few trials: each costs a compilation.
//!
//! The memory of a step grows almost linearly with the batch, so two trials predict where the limit is
//! reached, and a third confirms it. Where it is not linear, bisection continues.

use vramfit_base::Result;

/// The result of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Rows of the batch.
    pub batch: u64,
    /// Whether it fits.
    pub fits: bool,
    /// Peak bytes in use; if it does not fit, before the failure.
    pub peak_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSearchResult {
    /// The largest batch tried that fits; none if no batch did.
    pub largest: Option<Trial>,
    /// The smallest batch tried that does not fit; none if all rows did.
    pub too_large: Option<Trial>,
    /// Number of trials.
    pub trials: u32,
}

/// The search ends when the bounds differ by less than this part of the batch.
const RESOLUTION: u64 = 32;
/// Factor by which a candidate may exceed the largest batch known to fit.
const MAX_GROWTH: u64 = 16;

/// Searches, starting from the batch `wanted`, up to `max` rows and in at most `max_trials` trials.
///
/// # Errors
/// The error of a trial.
pub fn largest_batch(
    wanted: u64,
    max: u64,
    max_trials: u32,
    mut run_trial: impl FnMut(u64) -> Result<Trial>,
) -> Result<BatchSearchResult> {
    let mut search = BatchSearchResult { largest: None, too_large: None, trials: 0 };
    let mut previous = None;
    let mut next = Some(wanted.clamp(1, max));
    while let Some(batch) = next.filter(|_| search.trials < max_trials) {
        let trial = run_trial(batch)?;
        search.trials += 1;
        if trial.fits {
            previous = search.largest.replace(trial);
        } else {
            search.too_large = Some(trial);
        }
        next = next_candidate(&search, previous, max);
    }
    Ok(search)
}

/// Returns the batch to try next; none once the result is precise enough.
fn next_candidate(search: &BatchSearchResult, previous: Option<Trial>, max: u64) -> Option<u64> {
    let (low, high) = match (search.largest, search.too_large) {
        (None, None) => return None,
        (None, Some(fails)) => {
            return (fails.batch > 1).then(|| round_batch((fails.batch / 4).max(1), 0));
        }
        (Some(fits), None) if fits.batch == max => return None,
        (Some(fits), None) => (fits, max + 1),
        (Some(fits), Some(fails)) => (fits, fails.batch),
    };
    if high - low.batch <= (low.batch / RESOLUTION).max(1) {
        return None;
    }
    // Bounds that are far apart are bisected by ratio: 64 between 8 and 512.
    let middle = match high / low.batch {
        0..4 => low.batch + (high - low.batch) / 2,
        _ => ((low.batch as f64) * (high as f64)).sqrt() as u64,
    };
    let guess = match previous {
        Some(other) => interpolate(other, low),
        // One point tells only that twice the batch needs at most twice the memory.
        None => low.limit_bytes.saturating_mul(low.batch) / low.peak_bytes.max(1),
    };
    let guess = guess.min(low.batch.saturating_mul(MAX_GROWTH));
    // At the predicted limit, the next larger candidate must be tried, too.
    let guess = guess.max(low.batch + (low.batch / RESOLUTION).max(1));
    let is_between = |batch: &u64| (low.batch + 1..high).contains(batch);
    let all_rows = Some(max).filter(|max| guess >= *max).filter(is_between);
    let guess = Some(round_batch(guess, low.batch)).filter(is_between);
    Some(all_rows.or(guess).unwrap_or(match search.too_large {
        Some(_) => round_batch(middle, low.batch),
        None => low.batch.saturating_mul(2).min(max),
    }))
}

/// Returns the batch at which the line through two trials reaches the limit, or slightly less.
fn interpolate(one: Trial, other: Trial) -> u64 {
    let (low, high) = match one.batch < other.batch {
        true => (one, other),
        false => (other, one),
    };
    let rows = (high.batch - low.batch) as f64;
    let rise = high.peak_bytes.saturating_sub(low.peak_bytes) as f64;
    let headroom = high.limit_bytes.saturating_sub(high.peak_bytes) as f64;
    if rise <= 0.0 {
        // Nothing grows with the batch yet.
        return high.batch.saturating_mul(MAX_GROWTH);
    }
    high.batch.saturating_add((headroom / rise * rows * 0.995) as u64)
}

/// Rounds down to a multiple, unless that is not above `low`.
fn round_batch(batch: u64, low: u64) -> u64 {
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
    use vramfit_base::{Error, ErrorKind};

    /// Searches with a memory limit, and a step whose memory is a function of the batch.
    fn search(
        wanted: u64,
        max: u64,
        limit: u64,
        needs: impl Fn(u64) -> u64,
    ) -> (BatchSearchResult, Vec<u64>) {
        let mut asked = Vec::new();
        let found = largest_batch(wanted, max, 10, |batch| {
            asked.push(batch);
            let peak = needs(batch);
            Ok(Trial {
                batch,
                fits: peak <= limit,
                peak_bytes: peak.min(limit),
                limit_bytes: limit,
            })
        });
        (found.expect("no try fails"), asked)
    }

    /// The result of trying every batch.
    fn exhaustive(max: u64, limit: u64, needs: impl Fn(u64) -> u64) -> u64 {
        (1..=max).take_while(|batch| needs(*batch) <= limit).last().unwrap_or(0)
    }

    #[test]
    fn what_grows_in_a_straight_line_takes_six_tries_at_most() {
        let needs = |batch| 500_000 + 1_234 * batch;
        for wanted in [1, 64, 256, 4_000] {
            let (found, asked) = search(wanted, 1_000_000, 10_000_000, needs);
            let best = exhaustive(1_000_000, 10_000_000, needs);
            let batch = found.largest.expect("something fits").batch;
            assert!(batch <= best && batch >= best - best / RESOLUTION, "{asked:?}");
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
                if batch > 700 { 9_000_000 + batch } else { 1_000 * batch }
            },
            |batch| 20_000 * (batch as f64).sqrt() as u64,
        ];
        for (at, needs) in curves.into_iter().enumerate() {
            for wanted in [1, 256, 100_000] {
                let (found, asked) = search(wanted, 200_000, 8_000_000, needs);
                let best = exhaustive(200_000, 8_000_000, needs);
                let batch = found.largest.map_or(0, |tried| tried.batch);
                assert!(batch <= best, "{at} {asked:?}");
                assert!(batch >= best - best / 8, "{at}, best {best}: {asked:?}");
                assert!(asked.len() <= 10);
            }
        }
    }

    #[test]
    fn it_ends_at_the_rows_there_are_and_at_one() {
        let (found, asked) = search(64, 1_000, u64::MAX / 2, |batch| 10 * batch);
        assert_eq!(found.largest.expect("all fit").batch, 1_000);
        assert_eq!(found.too_large, None);
        assert_eq!(asked, [64, 1_000]);

        let (found, asked) = search(8, 1_000, 100, |_| 101);
        assert_eq!(found.largest, None);
        assert_eq!(found.too_large.expect("none fits").batch, 1);
        assert_eq!(asked, [8, 2, 1]);
    }

    #[test]
    fn a_try_that_fails_ends_the_search() {
        let broken = || Error::new(ErrorKind::GpuNotUsed, "the program never used the GPU");
        let error = largest_batch(8, 64, 10, |_| Err(broken())).expect_err("it fails");
        assert_eq!(error.kind(), ErrorKind::GpuNotUsed);
    }
}
