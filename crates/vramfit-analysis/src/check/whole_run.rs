//! What is known of a run beyond the steps that each check measures.

/// What a run came to that was not ended after some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WholeRun {
    /// Its peak in bytes.
    Peak(u64),
    /// Its peak in bytes until it was steady ([`StepLimit::Steady`](crate::run_config::StepLimit::Steady)); all of it takes too long.
    Steady(u64),
    /// It was ended when it had taken this many seconds.
    TimeLimit(u64),
    /// It could not be measured.
    Failed,
}

const UNTIL_STEADY: &str = "until_steady";

impl WholeRun {
    /// Returns its peak, where it is known.
    pub fn peak_bytes(self) -> Option<u64> {
        match self {
            WholeRun::Peak(bytes) | WholeRun::Steady(bytes) => Some(bytes),
            WholeRun::TimeLimit(_) | WholeRun::Failed => None,
        }
    }

    pub(super) fn parse(text: &str) -> Option<WholeRun> {
        match text.strip_prefix("not_measured:") {
            Some("failed") => Some(WholeRun::Failed),
            Some(limit) => {
                let seconds = limit.strip_prefix("longer_than_")?.strip_suffix('s')?;
                Some(WholeRun::TimeLimit(seconds.parse().ok()?))
            }
            None => match text.split_once(':') {
                Some((bytes, UNTIL_STEADY)) => Some(WholeRun::Steady(bytes.parse().ok()?)),
                Some(_) => None,
                None => Some(WholeRun::Peak(text.parse().ok()?)),
            },
        }
    }
}

/// As it is written in the lock file.
impl std::fmt::Display for WholeRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WholeRun::Peak(bytes) => write!(f, "{bytes}"),
            WholeRun::Steady(bytes) => write!(f, "{bytes}:{UNTIL_STEADY}"),
            WholeRun::TimeLimit(seconds) => write!(f, "not_measured:longer_than_{seconds}s"),
            WholeRun::Failed => f.write_str("not_measured:failed"),
        }
    }
}
