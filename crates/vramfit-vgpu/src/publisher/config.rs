//! The publisher's configuration in the environment.

use std::env;
use std::time::Duration;

/// Ten times a second.
const DEFAULT_MS: u64 = 100;
/// From a thousand times a second to once a minute.
const INTERVAL_RANGE_MS: std::ops::RangeInclusive<u64> = 1..=60_000;

/// How to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublishConfig {
    pub(super) interval: Duration,
    /// Whether to log what is published, and why something is not.
    pub(super) verbose: bool,
    /// The options that the user passed to vramfit, to be shown.
    pub(super) policy: Option<String>,
}

impl PublishConfig {
    /// Reads the environment; `None` if nothing is to be published.
    pub(super) fn read() -> Option<Self> {
        PublishConfig::from_vars(|name| env::var(name).ok())
    }

    fn from_vars(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let publish = variable("VRAMFIT_PUBLISH")?;
        if matches!(publish.as_str(), "" | "0" | "false" | "no" | "off") {
            return None;
        }
        let milliseconds = variable("VRAMFIT_PUBLISH_MS")
            .and_then(|text| text.parse().ok())
            .filter(|number| INTERVAL_RANGE_MS.contains(number));
        Some(PublishConfig {
            interval: Duration::from_millis(milliseconds.unwrap_or(DEFAULT_MS)),
            verbose: publish == "verbose",
            policy: variable("VRAMFIT_POLICY").filter(|text| !text.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(publish: Option<&str>, milliseconds: Option<&str>) -> Option<PublishConfig> {
        PublishConfig::from_vars(|name| match name {
            "VRAMFIT_PUBLISH" => publish.map(str::to_owned),
            "VRAMFIT_PUBLISH_MS" => milliseconds.map(str::to_owned),
            _ => None,
        })
    }

    #[test]
    fn publishing_is_off_by_default() {
        for off in [None, Some(""), Some("0"), Some("off")] {
            assert_eq!(config(off, None), None, "{off:?}");
        }
        let on = config(Some("1"), None).expect("asked for");
        assert_eq!((on.interval.as_millis(), on.verbose), (100, false));
        assert!(config(Some("verbose"), None).expect("asked for").verbose);
    }

    #[test]
    fn an_invalid_interval_is_replaced_by_the_default() {
        for (text, milliseconds) in [("20", 20), ("0", 100), ("soon", 100), ("900000", 100)] {
            let config = config(Some("1"), Some(text)).expect("asked for");
            assert_eq!(config.interval.as_millis(), milliseconds, "{text}");
        }
    }
}
