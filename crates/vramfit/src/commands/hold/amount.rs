//! How much and how long, as people write it.

use std::str::FromStr;
use std::time::Duration;

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::holder::Room;

/// An amount of memory, or a part of what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of all that can be used, above 0 and to 100.
    Percent(f64),
}

impl FromStr for Amount {
    type Err = Error;

    /// Parses `8GiB` or `90%`.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: String| {
            Error::new(ErrorKind::InvalidArgument, why)
                .hint("write bytes, such as `8GiB`, or a part of the GPU, such as `90%`")
        };
        let Some(number) = text.trim().strip_suffix('%') else {
            let bytes = text
                .parse::<Bytes>()
                .map_err(|_| refuse(format!("`{text}` is not an amount of memory")))?;
            return match bytes.0 {
                0 => Err(refuse(format!("`{text}` is nothing to hold"))),
                bytes => Ok(Amount::Bytes(bytes)),
            };
        };
        match number.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Amount::Percent(percent)),
            _ => Err(refuse(format!("`{text}` is not a part of a GPU"))),
        }
    }
}

impl Amount {
    /// Returns the bytes that it comes to where there is `room`.
    ///
    /// # Errors
    /// `invalid-argument` for a part of something whose size is not known.
    pub(super) fn of(self, room: &Room) -> Result<u64> {
        match (self, room.total_bytes) {
            (Amount::Bytes(bytes), _) => Ok(bytes),
            // Rounded down to whole bytes, and a share of 100 is exact.
            (Amount::Percent(percent), Some(total)) => {
                Ok((total as f64 * (percent / 100.0)).max(1.0) as u64)
            }
            (Amount::Percent(percent), None) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{percent}% of {} is not known: it tells no size",
                    room.whose
                ),
            )
            .hint("write bytes, such as `8GiB`")),
        }
    }
}

/// Parses a length of time: `90s`, `5m`, `1.5h`, or plain seconds.
///
/// # Errors
/// `invalid-argument` when the number or the unit is not understood.
pub(super) fn duration(text: &str) -> Result<Duration> {
    let refuse = || {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("`{text}` is not a length of time"),
        )
        .hint("write a number and a unit: `60s`, `5m`, `1h`")
    };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(refuse()),
    };
    let number: f64 = number.parse().map_err(|_| refuse())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| refuse())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(total_bytes: Option<u64>) -> Room {
        Room {
            total_bytes,
            ..Room::default()
        }
    }

    #[test]
    fn amounts_are_bytes_or_parts() {
        let of = |text: &str| text.parse::<Amount>().and_then(|a| a.of(&room(Some(1000))));
        assert_eq!(of("8GiB").expect("bytes"), 8 << 30);
        assert_eq!(of("90%").expect("a part"), 900);
        assert_eq!(of("33.35 %").expect("a part"), 333);
        assert_eq!(of("100%").expect("all"), 1000);
        let exact = Amount::Percent(100.0).of(&room(Some(15_828_320_256)));
        assert_eq!(exact.expect("all"), 15_828_320_256);
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "0", "0GiB", "0%", "101%", "-5%", "x%", "8 gigs", "%"] {
            let error = text.parse::<Amount>().expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.hint_text().is_some());
        }
        let error = Amount::Percent(50.0).of(&room(None)).expect_err("no size");
        assert!(error.message().contains("tells no size"), "{error}");
    }

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [
            ("60s", 60_000),
            ("60", 60_000),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("0s", 0),
            ("250ms", 250),
        ] {
            let parsed = duration(text).expect(text);
            assert_eq!(parsed, Duration::from_millis(milliseconds), "{text}");
        }
        for text in [
            "",
            "s",
            "5 minutes",
            "-1s",
            "1e3s",
            "99999999999999999999h",
            "1.2.3s",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
