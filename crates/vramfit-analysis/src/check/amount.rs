//! An amount of memory: bytes, or a percentage of another amount.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::bytes::Bytes;
use crate::error::Error;

/// Bytes, or a percentage of an amount that is known later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage from 0 to 100.
    Percent(f64),
}

impl Default for Amount {
    fn default() -> Self {
        Amount::Bytes(0)
    }
}

impl Amount {
    /// Returns the bytes, given the amount that a percentage is of; rounded down.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => (whole as f64 * percent / 100.0) as u64,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(bytes) => write!(f, "{}", Bytes(*bytes)),
            Amount::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Amount {
    type Err = Error;

    /// Parses `1MiB`, `0` or `5%`.
    ///
    /// # Errors
    /// `invalid-argument` for anything else.
    fn from_str(text: &str) -> Result<Self, Error> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return text.parse().map(|Bytes(bytes)| Amount::Bytes(bytes));
        };
        match number.trim().parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Amount::Percent(percent)),
            _ => Err(Error::invalid_argument(format!("`{text}` is not a percentage"))
                .hint("write a number from 0 to 100, such as `5%`")),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount of memory such as \"1MiB\" or \"5%\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
        text.parse().map_err(|error: Error| E::custom(error.message()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
        let bytes = u64::try_from(number);
        bytes.map(Amount::Bytes).map_err(|_| E::custom("an amount of memory cannot be negative"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_bytes_or_a_percentage() {
        let of = |text: &str| text.parse::<Amount>().map(|amount| amount.of(1000)).ok();
        assert_eq!(of("1KiB"), Some(1024));
        assert_eq!(of("0"), Some(0));
        assert_eq!(of("2.5%"), Some(25));
        assert_eq!(of(" 5 % "), Some(50));
        for wrong in ["", "5 percent", "-1%", "101%", "NaN%", "%"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
