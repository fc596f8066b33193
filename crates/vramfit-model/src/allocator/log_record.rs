//! Records of a log.

/// How important a log record is. JAX hides `Info` unless `TF_CPP_MIN_LOG_LEVEL=0` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// `I`
    Info,
    /// `W`
    Warning,
}

/// One record of the log; it may have several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// How important it is.
    pub severity: Severity,
    /// Its text without the prefix.
    pub text: String,
}

pub(super) fn info(text: String) -> LogRecord {
    LogRecord { severity: Severity::Info, text }
}

pub(super) fn warning(text: String) -> LogRecord {
    LogRecord { severity: Severity::Warning, text }
}
