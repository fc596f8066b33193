//! Releases of JAX, compared by number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A release of JAX, such as 0.10.2.
///
/// jax, jaxlib and the CUDA plugin are released together and bear the same number. What stands
/// behind the number (`rc1`, `.dev20260401`, `+cuda12`) is not kept: such a build is judged by the
/// release it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// A version that is newer than every release.
    pub const MAX: Version = Version::new(u32::MAX, 0, 0);

    /// Makes a version from its three numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Version { major, minor, patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}.{}", self.major, self.minor, self.patch))
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Version> for (u32, u32, u32) {
    fn from(version: Version) -> Self {
        (version.major, version.minor, version.patch)
    }
}

impl FromStr for Version {
    type Err = Error;

    /// Parses `0.10.2`, `0.11`, `0.11.0rc1`, `0.10.2.dev20260501+abc`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] when it does not begin with two numbers.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = || {
            Error::invalid_argument(format!("`{text}` is not a version of JAX"))
                .hint("write it as in `pip list`, such as `0.10.2`")
        };
        let mut numbers = [0; 3];
        let mut rest = text.trim();
        for (place, number) in numbers.iter_mut().enumerate() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let Ok(value) = rest[..digits].parse() else {
                // `0.11` and `0.11.dev3` have no third number.
                if place == 2 {
                    break;
                } else {
                    return Err(refuse());
                }
            };
            *number = value;
            rest = &rest[digits..];
            match rest.strip_prefix('.') {
                Some(after) if place < 2 => rest = after,
                _ if place == 0 => return Err(refuse()),
                _ => break,
            }
        }
        let [major, minor, patch] = numbers;
        Ok(Version { major, minor, patch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_releases_and_what_is_built_from_them() {
        for (text, version) in [
            ("0.10.2", Version::new(0, 10, 2)),
            (" 0.4.33 ", Version::new(0, 4, 33)),
            ("0.11", Version::new(0, 11, 0)),
            ("0.11.0rc1", Version::new(0, 11, 0)),
            ("0.10.2.dev20260501+abc", Version::new(0, 10, 2)),
            ("0.12.dev3", Version::new(0, 12, 0)),
            ("0.4.26+cuda12.cudnn89", Version::new(0, 4, 26)),
        ] {
            assert_eq!(text.parse::<Version>().expect(text), version);
        }
        for text in ["", "0", "v0.10.2", "ten.two", ".1.2", "0..1", "99999999999.1.0"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_compared_and_not_letters() {
        assert!(Version::new(0, 10, 0) > Version::new(0, 9, 2));
        assert!(Version::new(0, 4, 9) < Version::new(0, 4, 33));
        assert_eq!(Version::new(0, 10, 2).to_string(), "0.10.2");
    }
}
