//! Amounts of memory and durations, as written on the command line.

use std::str::FromStr;

use vramfit_analysis::{Bytes, Error, Result};

use super::backend::MemoryStatus;

/// An amount of memory, absolute or relative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Amount {
    Bytes(u64),
    /// Percentage of the usable memory, above 0 and at most 100.
    Percent(f64),
}

impl FromStr for Amount {
    type Err = Error;

    /// Parses `8GiB` or `90%`.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |why: String| {
            Error::invalid_argument(why).hint(
                "use bytes, such as `8GiB`, or a percentage of the GPU's memory, such as `90%`",
            )
        };
        let Some(number) = text.trim().strip_suffix('%') else {
            if let Some(likely) = Bytes::likely_meaning(text) {
                return Err(without_unit(text.trim(), &likely));
            }
            let bytes = text
                .parse::<Bytes>()
                .map_err(|_| invalid(format!("`{text}` is not an amount of memory")))?;
            return match bytes.0 {
                0 => Err(invalid("the amount must be greater than 0".to_owned())),
                bytes => Ok(Amount::Bytes(bytes)),
            };
        };
        match number.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Amount::Percent(percent)),
            _ => Err(invalid(format!(
                "`{text}` is out of range; expected more than 0% and at most 100%"
            ))),
        }
    }
}

/// Returns the error for a small number without a unit, with what it may mean.
fn without_unit(number: &str, likely: &str) -> Error {
    let can_be_percent = number.parse::<f64>().is_ok_and(|number| number <= 100.0);
    let meanings = match can_be_percent {
        true => format!("`{likely}` or `{number}%`"),
        false => format!("`{likely}`"),
    };
    Error::invalid_argument(format!("`{number}` has no unit, and can mean {meanings}"))
        .hint(format!("write {meanings}; `{number}B` is that many bytes"))
}

impl Amount {
    /// Converts the amount to bytes.
    ///
    /// # Errors
    /// `invalid-argument` for a percentage of memory whose size is unknown.
    pub(super) fn in_bytes(self, memory: &MemoryStatus) -> Result<u64> {
        match (self, memory.total_bytes) {
            (Amount::Bytes(bytes), _) => Ok(bytes),
            // Rounded down to whole bytes; 100 percent is exact.
            (Amount::Percent(percent), Some(total)) => {
                Ok((total as f64 * (percent / 100.0)).max(1.0) as u64)
            }
            (Amount::Percent(percent), None) => Err(Error::invalid_argument(format!(
                "{percent}% of {} is unknown, because its size is",
                memory.source
            ))
            .hint("use bytes, such as `8GiB`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_analysis::ErrorKind;

    fn memory(total_bytes: Option<u64>) -> MemoryStatus {
        MemoryStatus { total_bytes, ..MemoryStatus::default() }
    }

    #[test]
    fn amounts_are_bytes_or_percentages() {
        let of = |text: &str| text.parse::<Amount>().and_then(|a| a.in_bytes(&memory(Some(1000))));
        assert_eq!(of("8GiB").expect("bytes"), 8 << 30);
        assert_eq!(of("90%").expect("a part"), 900);
        assert_eq!(of("33.35 %").expect("a part"), 333);
        assert_eq!(of("100%").expect("all"), 1000);
        let exact = Amount::Percent(100.0).in_bytes(&memory(Some(15_828_320_256)));
        assert_eq!(exact.expect("all"), 15_828_320_256);
    }

    #[test]
    fn a_number_without_a_unit_has_several_meanings() {
        for (text, meanings) in [
            ("90", &["`90GiB`", "`90%`"][..]),
            ("0.5", &["`0.5GiB`", "`0.5%`"]),
            ("500", &["`500GiB`"]),
            ("8192", &["`8192MiB`"]),
        ] {
            let error = text.parse::<Amount>().expect_err(text);
            for meaning in meanings {
                assert!(error.message().contains(meaning), "{error}");
            }
            assert_eq!(error.message().contains('%'), meanings.len() == 2);
        }
        assert_eq!("90B".parse::<Amount>().ok(), Some(Amount::Bytes(90)));
    }

    #[test]
    fn invalid_amounts_are_rejected() {
        for text in ["", "0", "0GiB", "0%", "101%", "-5%", "x%", "8 gigs", "%"] {
            let error = text.parse::<Amount>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.hint_text().is_some());
        }
        let error = Amount::Percent(50.0).in_bytes(&memory(None)).expect_err("no size");
        assert!(error.message().contains("is unknown"), "{error}");
    }
}
