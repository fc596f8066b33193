//! Is somebody still writing this file?

use serde::{Deserialize, Serialize};

use super::{LiveStats, StatsHeader};

/// What is known where the file is read, at the moment it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderContext<'a> {
    /// The kernel's name for the time since the machine was started.
    pub boot_id: &'a str,
    /// The monotonic clock, in nanoseconds.
    pub monotonic_ns: u64,
    /// The namespace that process numbers are told in here; 0 where that is not known.
    pub pid_namespace: u64,
    /// When the process with the file's number was started, in clock ticks; `None` if there is none.
    pub started_ticks: Option<u64>,
}

/// Whether a file's figures are of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// They are not older than two intervals.
    Fresh,
    /// The process is there, or may be, but has not looked for longer than two intervals.
    Silent {
        /// Since when.
        for_ms: u64,
    },
    /// The process is gone and has left its file behind.
    Gone {
        /// How long ago it looked for the last time.
        for_ms: u64,
    },
    /// The file is from before the machine was started anew.
    OtherBoot,
}

impl Liveness {
    /// Returns `true` if the figures are not of now.
    pub fn is_stale(self) -> bool {
        self != Liveness::Fresh
    }
}

/// Judges whether a file's figures are of now.
///
/// A process in another namespace (a container that shares its folder) has another number here, so
/// that only the age of its file can tell.
pub fn assess(header: &StatsHeader, live: &LiveStats, observed: &ReaderContext<'_>) -> Liveness {
    if header.boot_id != observed.boot_id {
        return Liveness::OtherBoot;
    }
    let age_ns = observed.monotonic_ns.saturating_sub(live.heartbeat_ns);
    let for_ms = age_ns / 1_000_000;
    let same_namespace = header.pid_namespace == observed.pid_namespace;
    if same_namespace && observed.started_ticks != Some(header.started_ticks) {
        return Liveness::Gone { for_ms };
    }
    if age_ns > 2 * u64::from(header.interval_ms) * 1_000_000 {
        return Liveness::Silent { for_ms };
    }
    Liveness::Fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn assessed(change: impl FnOnce(&mut ReaderContext<'_>)) -> Liveness {
        let header = StatsHeader {
            pid: 7,
            started_ticks: 70,
            pid_namespace: 5,
            boot_id: "this".to_owned(),
            interval_ms: 100,
            ..StatsHeader::default()
        };
        let live = LiveStats { heartbeat_ns: 100 * SECOND, ..LiveStats::default() };
        let mut observed = ReaderContext {
            boot_id: "this",
            monotonic_ns: 100 * SECOND,
            pid_namespace: 5,
            started_ticks: Some(70),
        };
        change(&mut observed);
        assess(&header, &live, &observed)
    }

    #[test]
    fn a_page_is_fresh_for_two_intervals() {
        assert_eq!(assessed(|_| {}), Liveness::Fresh);
        assert_eq!(assessed(|seen| seen.monotonic_ns += 200_000_000), Liveness::Fresh);
        assert_eq!(
            assessed(|seen| seen.monotonic_ns += 200_000_001),
            Liveness::Silent { for_ms: 200 }
        );
    }

    #[test]
    fn a_process_that_is_gone_is_reported_at_once_also_when_its_number_is_used_again() {
        for started in [None, Some(71)] {
            assert_eq!(assessed(|seen| seen.started_ticks = started), Liveness::Gone { for_ms: 0 });
        }
    }

    #[test]
    fn in_another_namespace_only_the_age_counts() {
        let elsewhere = |seen: &mut ReaderContext<'_>| {
            seen.pid_namespace = 6;
            seen.started_ticks = None;
        };
        assert_eq!(assessed(elsewhere), Liveness::Fresh);
        let late = |seen: &mut ReaderContext<'_>| {
            elsewhere(seen);
            seen.monotonic_ns += SECOND;
        };
        assert_eq!(assessed(late), Liveness::Silent { for_ms: 1000 });
    }

    #[test]
    fn a_page_of_an_earlier_boot_is_nobodys() {
        assert_eq!(assessed(|seen| seen.boot_id = "other"), Liveness::OtherBoot);
    }
}
