//! Sizes of memory: parsed from what people write, shown in binary units.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A number of bytes.
///
/// Shown in binary units with one decimal (`12.0 GiB`); serialized as the exact integer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Suffixes people write, with their factor. `G` and `GB` are decimal, `Gi` and `GiB` binary, as in the
/// standards and in Kubernetes; GPUs are sold in the first and measured in the second.
const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("b", 1),
    ("k", 1_000),
    ("kb", 1_000),
    ("ki", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mi", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gi", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tb", 1_000_000_000_000),
    ("ti", 1 << 40),
    ("tib", 1 << 40),
];

impl FromStr for Bytes {
    type Err = Error;

    /// Parses `8GiB`, `8Gi`, `8 GB`, `1.5GiB` or plain bytes, in any case.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when the number or the unit is not understood.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || {
            Error::invalid_argument(format!("`{text}` is not an amount of memory"))
                .hint("write a number and a unit, such as `8GiB`, `500MB` or `1073741824`")
        };
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let number = number.replace('_', "");
        let unit = unit.trim().to_ascii_lowercase();
        let factor = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?.1;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Bytes).ok_or_else(refuse);
        }
        let value = number.parse::<f64>().map_err(|_| refuse())? * factor as f64;
        if value.is_finite() && value < u64::MAX as f64 {
            Ok(Bytes(value as u64))
        } else {
            Err(refuse())
        }
    }
}

impl Bytes {
    /// Below this, a number without a unit is surely not meant as bytes of memory.
    const MIN_WITHOUT_UNIT: f64 = (1 << 20) as f64;

    /// Parses an amount of memory that a program is to have, as [`FromStr`] does; but a small number without
    /// a unit, such as the `16` of someone who thinks of GiB, is rejected with what it could be.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`].
    pub fn parse_memory(text: &str) -> Result<Self, Error> {
        let bytes: Bytes = text.parse()?;
        let Some(likely) = Bytes::likely_meaning(text) else {
            return Ok(bytes);
        };
        let number = text.trim();
        let hint = match number.parse::<f64>() {
            Ok(value) if value < 1.0 => {
                format!("write a unit, such as `{likely}`; a fraction is an option of its own")
            }
            _ => format!("write `{likely}`, or `{number}B` for that many bytes"),
        };
        Err(Error::invalid_argument(format!(
            "`{text}` has no unit, and is too small an amount of memory in bytes"
        ))
        .hint(hint))
    }

    /// Returns what a small number without a unit is likely to mean: GiB, or MiB as `nvidia-smi` prints
    /// them; `None` for any other text.
    pub fn likely_meaning(text: &str) -> Option<String> {
        let number = text.trim().replace('_', "");
        let value = number.parse::<f64>().ok()?;
        let is_plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        let is_small = value > 0.0 && value < Bytes::MIN_WITHOUT_UNIT;
        let unit = if value < 1024.0 { "GiB" } else { "MiB" };
        (is_plain && is_small).then(|| format!("{number}{unit}"))
    }

    /// Returns the shortest text that means exactly this amount and can be given to an option: `8GiB`,
    /// `500MB`, `1073741825`.
    pub fn to_exact_text(self) -> String {
        const LARGEST_FIRST: [(&str, u64); 5] = [
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("GB", 1_000_000_000),
            ("MiB", 1 << 20),
            ("MB", 1_000_000),
        ];
        let whole = |(_, factor): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*factor);
        match LARGEST_FIRST.iter().find(whole) {
            Some((unit, factor)) => format!("{}{unit}", self.0 / factor),
            None => self.0.to_string(),
        }
    }

    /// Returns the text of an estimate, which has no more than two or three digits before the unit: `99 MiB`, `1.2 GiB`.
    pub fn estimated(self) -> String {
        match self.scaled() {
            // What one decimal would show as 10.0.
            Some((value, unit)) if value >= 9.95 => format!("{value:.0} {unit}"),
            _ => self.to_string(),
        }
    }

    /// Returns the amount in the largest binary unit in which it is no fraction; none below 1 KiB.
    fn scaled(self) -> Option<(f64, &'static str)> {
        const NAMES: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return None;
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would be shown as "1024.0", so it belongs to the next unit.
        while value >= 1023.95 && unit + 1 < NAMES.len() {
            value /= 1024.0;
            unit += 1;
        }
        Some((value, NAMES[unit]))
    }

    /// Returns a text that can be given to an option where this is the most that is accepted: in binary
    /// units with one decimal, and never more than the amount.
    pub fn rounded_down(self) -> String {
        const LARGEST_FIRST: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let Some((unit, factor)) = LARGEST_FIRST.iter().find(|(_, factor)| self.0 >= *factor)
        else {
            return self.0.to_string();
        };
        let tenths = u128::from(self.0) * 10 / u128::from(*factor);
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self.scaled() {
            Some((value, unit)) => format!("{value:.1} {unit}"),
            None => format!("{} B", self.0),
        })
    }
}

impl From<u64> for Bytes {
    fn from(value: u64) -> Self {
        Bytes(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_people_write() {
        for (text, bytes) in [
            ("8GiB", 8 << 30),
            ("8 gib", 8 << 30),
            ("8Gi", 8 << 30),
            ("512Mi", 512 << 20),
            ("8GB", 8_000_000_000),
            ("1.5GiB", 3 << 29),
            ("1024", 1024),
            ("8_589_934_592", 8 << 30),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<Bytes>().expect(text), Bytes(bytes), "{text}");
        }
    }

    #[test]
    fn texts_for_options_are_read_back() {
        for (bytes, exact, at_most) in [
            (8 << 30, "8GiB", "8.0GiB"),
            (8_000_000_000, "8GB", "7.4GiB"),
            (2 << 20, "2MiB", "2.0MiB"),
            (15_642_329_088, "15642329088", "14.5GiB"),
            (1_073_741_825, "1073741825", "1.0GiB"),
            (1023, "1023", "1023"),
            (0, "0", "0"),
            (u64::MAX, "18446744073709551615", "16777215.9TiB"),
        ] {
            let bytes = Bytes(bytes);
            assert_eq!(bytes.to_exact_text(), exact);
            assert_eq!(bytes.to_exact_text().parse::<Bytes>().unwrap(), bytes);
            assert_eq!(bytes.rounded_down(), at_most);
            assert!(at_most.parse::<Bytes>().unwrap() <= bytes, "{at_most}");
        }
    }

    #[test]
    fn estimates_have_few_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (104_019_763, "99 MiB"),
            (640 << 20, "640 MiB"),
            (10_737_418_240 - 1, "10 GiB"),
            (1_288_490_189, "1.2 GiB"),
        ] {
            assert_eq!(Bytes(bytes).estimated(), text);
        }
    }

    #[test]
    fn small_numbers_of_memory_need_a_unit() {
        for (text, likely) in [
            ("16", "16GiB"),
            ("0.5", "0.5GiB"),
            (" 1023 ", "1023GiB"),
            ("8192", "8192MiB"),
            ("1_048_575", "1048575MiB"),
        ] {
            let error = Bytes::parse_memory(text).unwrap_err();
            assert!(error.message().contains("has no unit"), "{text}");
            let hint = error.hint_text().unwrap_or_default();
            assert!(hint.contains(&format!("`{likely}`")), "{hint}");
        }
        for (text, bytes) in
            [("0", 0), ("16B", 16), ("16KiB", 16 << 10), ("1048576", 1 << 20), ("8GiB", 8 << 30)]
        {
            assert_eq!(Bytes::parse_memory(text).expect(text), Bytes(bytes));
        }
        assert!(Bytes::parse_memory("16 gigs").is_err());
    }

    #[test]
    fn refuses_what_is_not_an_amount() {
        for text in ["", "GiB", "8 gigs", "-1GiB", "1e9", "99999999999999999999", "1.2.3GiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn shows_one_decimal_and_never_1024() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (79 * (1 << 30) + (1 << 28), "79.2 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
