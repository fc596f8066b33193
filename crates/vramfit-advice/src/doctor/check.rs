//! The result of a check.

use serde::Serialize;

/// The status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// No problem.
    Pass,
    /// It works, but probably not as intended.
    Warn,
    /// It does not work.
    Fail,
    /// Not checked; the message gives the reason.
    Skip,
}

impl Status {
    /// Returns its label of four letters.
    pub fn label(self) -> &'static str {
        match self {
            Status::Pass => "PASS",
            Status::Warn => "WARN",
            Status::Fail => "FAIL",
            Status::Skip => "SKIP",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its stable ID, such as `pool`. A check with several results has several `Check`s.
    pub id: &'static str,
    /// Its status.
    pub status: Status,
    /// The result, in one message without a full stop.
    pub message: String,
    /// What the result is based on: numbers, files, log lines.
    pub evidence: Vec<String>,
    /// The fix, a command or a setting; always set for warnings and failures.
    pub fix: Option<String>,
}

impl Check {
    fn new(id: &'static str, status: Status, message: impl Into<String>) -> Check {
        Check { id, status, message: message.into(), evidence: Vec::new(), fix: None }
    }

    pub(super) fn pass(id: &'static str, message: impl Into<String>) -> Check {
        Check::new(id, Status::Pass, message)
    }

    pub(super) fn skip(id: &'static str, message: impl Into<String>) -> Check {
        Check::new(id, Status::Skip, message)
    }

    pub(super) fn warn(
        id: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        let check = Check::new(id, Status::Warn, message);
        Check { fix: Some(fix.into()), ..check }
    }

    pub(super) fn fail(
        id: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        Check { status: Status::Fail, ..Check::warn(id, message, fix) }
    }

    /// Adds a line of evidence.
    pub(super) fn evidence_line(mut self, line: impl Into<String>) -> Check {
        self.evidence.push(line.into());
        self
    }

    /// Adds lines of evidence.
    pub(super) fn evidence_lines(
        mut self,
        lines: impl IntoIterator<Item = impl Into<String>>,
    ) -> Check {
        self.evidence.extend(lines.into_iter().map(Into::into));
        self
    }
}
