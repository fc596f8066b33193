//! Measured figures against limits and accepted figures.

use serde::Serialize;

use super::amount::Amount;
use super::figures::Figures;
use crate::bytes::Bytes;

/// What an entry may need at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes that its peak may have.
    pub max: Option<Bytes>,
    /// What its peak must leave of the pool.
    pub spare: Option<Amount>,
    /// By how much a figure may exceed the accepted one.
    pub tolerance: Amount,
}

/// What a check says of an entry on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "id", rename_all = "snake_case")]
pub enum Outcome {
    /// Every figure is the accepted one.
    Unchanged,
    /// No figure is larger than accepted, and one is smaller.
    Smaller,
    /// A figure is larger than accepted, within the tolerance.
    WithinTolerance,
    /// Limits are kept, and nothing else was to be compared.
    WithinLimits,
    /// Limits are kept; there is no accepted figure to compare with.
    NotAccepted,
    /// A figure is larger than accepted.
    Larger,
    /// The peak exceeds a limit of the entry.
    OverLimit {
        /// Which, as a sentence without its full stop.
        reason: String,
    },
    /// A request would fail on the GPU.
    DoesNotFit,
    /// Two measurements of the same program differ, so that none of them can be compared.
    NotReproducible {
        /// The figure, and both values.
        reason: String,
    },
    /// It could not be measured.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// Returns whether the check passes; `None` where that cannot be told.
    pub fn passes(&self) -> Option<bool> {
        match self {
            Outcome::Unchanged
            | Outcome::Smaller
            | Outcome::WithinTolerance
            | Outcome::WithinLimits => Some(true),
            Outcome::Larger | Outcome::OverLimit { .. } | Outcome::DoesNotFit => Some(false),
            Outcome::NotAccepted | Outcome::NotReproducible { .. } | Outcome::Failed { .. } => None,
        }
    }
}

/// Returns whether all pass; `None` where none fails and something is not known.
pub fn combine_answers(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for answer in answers {
        match answer {
            Some(false) => return Some(false),
            None => all = None,
            Some(true) => {}
        }
    }
    all
}

/// Judges measured figures.
///
/// `fits` says whether every request would be met, `limit_bytes` what the pool can have.
pub fn determine_outcome(
    figures: &Figures,
    fits: bool,
    limit_bytes: u64,
    accepted: Option<&Figures>,
    limits: &Limits,
) -> Outcome {
    if !fits {
        return Outcome::DoesNotFit;
    }
    let peak = figures.peak_bytes;
    if let Some(max) = limits.max.filter(|max| peak > max.0) {
        let reason =
            format!("the peak of {} exceeds `max` by {}", Bytes(peak), Bytes(peak - max.0));
        return Outcome::OverLimit { reason };
    }
    let spare_bytes = limit_bytes.saturating_sub(peak);
    if let Some(spare) = limits.spare {
        let wanted = spare.of(limit_bytes);
        if spare_bytes < wanted {
            let reason = format!(
                "{} of the {} of the pool are left, {} less than `spare`",
                Bytes(spare_bytes),
                Bytes(limit_bytes),
                Bytes(wanted - spare_bytes)
            );
            return Outcome::OverLimit { reason };
        }
    }
    let Some(accepted) = accepted else {
        return Outcome::NotAccepted;
    };
    let pairs = figures.named().into_iter().zip(accepted.named());
    let mut outcome = Outcome::Unchanged;
    for ((_, measured), (_, accepted)) in pairs {
        if measured > accepted.saturating_add(limits.tolerance.of(accepted)) {
            return Outcome::Larger;
        }
        outcome = match outcome {
            _ if measured > accepted => Outcome::WithinTolerance,
            Outcome::Unchanged if measured < accepted => Outcome::Smaller,
            outcome => outcome,
        };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: Figures = Figures { peak_bytes: 1000, steady_state_bytes: 100, temp_bytes: 500 };

    fn outcome(accepted: Figures, limits: &Limits) -> Outcome {
        determine_outcome(&FIGURES, true, 2000, Some(&accepted), limits)
    }

    #[test]
    fn one_byte_more_of_any_figure_is_larger() {
        let none = Limits::default();
        assert_eq!(outcome(FIGURES, &none), Outcome::Unchanged);
        for accepted in [
            Figures { peak_bytes: 999, ..FIGURES },
            Figures { steady_state_bytes: 99, ..FIGURES },
            Figures { temp_bytes: 499, peak_bytes: 5000, ..FIGURES },
        ] {
            assert_eq!(outcome(accepted, &none), Outcome::Larger);
        }
        let more = Figures { peak_bytes: 1001, ..FIGURES };
        assert_eq!(outcome(more, &none), Outcome::Smaller);
    }

    #[test]
    fn a_tolerance_is_of_each_accepted_figure() {
        let accepted = Figures { peak_bytes: 990, ..FIGURES };
        let with = |tolerance| Limits { tolerance, ..Limits::default() };
        assert_eq!(outcome(accepted, &with(Amount::Bytes(10))), Outcome::WithinTolerance);
        assert_eq!(outcome(accepted, &with(Amount::Bytes(9))), Outcome::Larger);
        assert_eq!(outcome(accepted, &with(Amount::Percent(2.0))), Outcome::WithinTolerance);
        assert_eq!(outcome(accepted, &with(Amount::Percent(1.0))), Outcome::Larger);
    }

    #[test]
    fn limits_come_before_accepted_figures() {
        let max = Limits { max: Some(Bytes(999)), ..Limits::default() };
        assert!(matches!(outcome(FIGURES, &max), Outcome::OverLimit { .. }));
        let spare = |amount| Limits { spare: Some(amount), ..Limits::default() };
        assert_eq!(outcome(FIGURES, &spare(Amount::Percent(50.0))), Outcome::Unchanged);
        let over = outcome(FIGURES, &spare(Amount::Bytes(1001)));
        assert!(matches!(over, Outcome::OverLimit { .. }));
        let refused = determine_outcome(&FIGURES, false, 2000, Some(&FIGURES), &max);
        assert_eq!(refused, Outcome::DoesNotFit);
        let new = determine_outcome(&FIGURES, true, 2000, None, &Limits::default());
        assert_eq!(new, Outcome::NotAccepted);
    }
}
