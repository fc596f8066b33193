//! After which training steps a run ends.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// How many calls of the training step in a row must be without a new program for a run to be steady.
pub const STEADY_CALLS: u64 = 200;
/// How many training steps are measured where nobody says otherwise: fewer tell nothing of what a step keeps.
pub const FEW_CALLS: u64 = 3;

/// After which training steps a run ends, as `--steps` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepLimit {
    /// After this many.
    Calls(u64),
    /// After [`STEADY_CALLS`] in a row during which no program was executed for the first time.
    Steady,
}

const STEADY: &str = "steady";

impl fmt::Display for StepLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepLimit::Calls(calls) => calls.fmt(out),
            StepLimit::Steady => out.write_str(STEADY),
        }
    }
}

impl FromStr for StepLimit {
    type Err = Error;

    /// # Errors
    /// `invalid-argument` for what is neither a positive number nor `steady`.
    fn from_str(text: &str) -> Result<StepLimit> {
        let problem = match text.parse() {
            _ if text == STEADY => return Ok(StepLimit::Steady),
            Ok(0) => "number of steps `0` is out of range; expected at least 1".into(),
            Ok(calls) => return Ok(StepLimit::Calls(calls)),
            Err(_) => format!("`{text}` is not a number of steps"),
        };
        Err(Error::invalid_argument(problem).hint(format!(
            "write a whole number such as `3`, or `{STEADY}` to stop after {STEADY_CALLS} in a row that executed no new \
             program"
        )))
    }
}

impl Serialize for StepLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            StepLimit::Calls(calls) => serializer.serialize_u64(*calls),
            StepLimit::Steady => serializer.serialize_str(STEADY),
        }
    }
}

impl<'de> Deserialize<'de> for StepLimit {
    fn deserialize<D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<StepLimit, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Calls(u64),
            Word(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Calls(calls) => calls.to_string().parse().map_err(D::Error::custom),
            Form::Word(word) => word.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for (limit, json) in [(StepLimit::Calls(3), "3"), (StepLimit::Steady, "\"steady\"")] {
            assert_eq!(serde_json::to_string(&limit).expect("a value"), json);
            assert_eq!(serde_json::from_str::<StepLimit>(json).ok(), Some(limit));
            assert_eq!(limit.to_string().parse::<StepLimit>().ok(), Some(limit));
        }
        for text in ["0", "-1", "3.5", "Steady", ""] {
            assert!(text.parse::<StepLimit>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<StepLimit>("0").is_err());
    }
}
