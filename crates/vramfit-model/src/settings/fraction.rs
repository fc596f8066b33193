//! The text form of the pool's fraction, which the plugin takes since JAX 0.12.
//!
//! JAX's own variables still give a plain number. The text comes in through
//! `JAX_PJRT_CLIENT_CREATE_OPTIONS=memory_fraction_policy:0.75+`, or `jax.config.update`.

/// How much of a GPU the pool takes at the start, and how far it may grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FractionPolicy {
    /// The part of the GPU's total memory that it takes at the start.
    pub start: f64,
    /// The part it may grow to; `None` where it stays as it is.
    pub cap: Option<f64>,
}

/// What XLA says of the form at the end of each refusal.
const GRAMMAR: &str = "expected START, START+, or START-CAP as fractions of total device memory, \
    for example \"0.75\" (fixed at 75%), \"0.75+\" (preallocate 75%, grow to all memory), or \
    \"0.75-0.85\" (grow to at most 85%)";

impl FractionPolicy {
    /// Reads `0.75`, `0.75+` or `0.75-0.85` as XLA does.
    ///
    /// # Errors
    /// XLA's sentence about a text of another form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |reason| format!("Invalid memory fraction \"{text}\": {reason}; {GRAMMAR}");
        let number = |part: &str| {
            let value: f64 = part.trim_ascii().parse().unwrap_or(0.0);
            let is_fraction = value.is_finite() && value > 0.0;
            is_fraction.then_some(value).ok_or_else(|| refuse("fractions must be positive numbers"))
        };
        let spec = text.trim_ascii();
        let (start, cap) = if let Some(start) = spec.strip_suffix('+') {
            (number(start)?, Some(1.0))
        } else if let Some(at) = separator(spec) {
            (number(&spec[..at])?, Some(number(&spec[at + 1..])?))
        } else {
            (number(spec)?, None)
        };
        match cap {
            Some(cap) if cap < start => Err(refuse("the cap must be at least the start")),
            Some(cap) if cap > 1.0 && cap > start => {
                Err(refuse("a growth cap cannot exceed 1 (all of device memory)"))
            }
            _ => Ok(FractionPolicy { start, cap: cap.filter(|cap| *cap > start) }),
        }
    }
}

/// Returns where the cap begins: at a minus sign that is not an exponent's.
fn separator(spec: &str) -> Option<usize> {
    spec.match_indices('-').map(|(at, _)| at).find(|at| !spec[..*at].ends_with(['e', 'E']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// XLA's own tests of the form (`xla/pjrt/gpu/allocator_config_test.cc`) reject these, too.
    #[test]
    fn other_forms_are_refused_with_the_reason() {
        for text in [
            "",
            "abc",
            "0",
            "-0.5",
            "nan",
            "inf",
            "0.5-",
            "0.5-abc",
            "0.5-0.7-0.9",
            "+",
            "0+",
            "-0.5+",
            "nan+",
            "inf+",
            "0.5++",
            "0.5+-1",
            "0.5-0.9+",
        ] {
            let told = FractionPolicy::parse(text).unwrap_err();
            assert!(told.contains("fractions must be positive numbers; "), "{text}: {told}");
        }
        for (text, reason) in [
            ("0.9-0.5", "the cap must be at least the start"),
            ("1.5+", "the cap must be at least the start"),
            ("0.5-1.5", "a growth cap cannot exceed 1"),
        ] {
            let told = FractionPolicy::parse(text).unwrap_err();
            assert!(told.contains(reason), "{text}: {told}");
        }
    }

    #[test]
    fn the_three_forms_are_read() {
        for (text, start, cap) in [
            ("0.75", 0.75, None),
            (" .5 ", 0.5, None),
            ("1.5", 1.5, None),
            ("0.75+", 0.75, Some(1.0)),
            ("0.75 - 0.85", 0.75, Some(0.85)),
            ("1e-1-0.5", 0.1, Some(0.5)),
            // Nothing to grow into.
            ("0.75-0.75", 0.75, None),
            ("1+", 1.0, None),
        ] {
            let expected = FractionPolicy { start, cap };
            assert_eq!(FractionPolicy::parse(text), Ok(expected), "{text}");
        }
    }
}
