//! Durations, as they are written on a command line.

use std::time::Duration;

use crate::error::{Error, Result};

/// Parses a duration: `90s`, `5m`, `1.5h`, or plain seconds.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] when the number or the unit is not understood.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let invalid = || {
        Error::invalid_argument(format!("`{text}` is not a duration"))
            .hint("use a number and a unit: `60s`, `5m`, `1h`")
    };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(invalid()),
    };
    let number: f64 = number.parse().map_err(|_| invalid())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in [
            ("60s", 60_000),
            ("60", 60_000),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("0s", 0),
            ("250ms", 250),
        ] {
            let parsed = parse_duration(text).expect(text);
            assert_eq!(parsed, Duration::from_millis(milliseconds), "{text}");
        }
        for text in ["", "s", "5 minutes", "-1s", "1e3s", "99999999999999999999h", "1.2.3s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
