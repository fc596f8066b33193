//! What one check found.

use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is as it should be.
    Pass,
    /// It works, and not as whoever set it up will have meant.
    Warn,
    /// It does not work.
    Fail,
    /// It was not examined, for a reason that is told.
    Skip,
}

impl Status {
    /// Returns the word for it, four letters long.
    pub fn word(self) -> &'static str {
        match self {
            Status::Pass => "PASS",
            Status::Warn => "WARN",
            Status::Fail => "FAIL",
            Status::Skip => "SKIP",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its lasting name, such as `pool`. Of several findings of one check each is a `Check`.
    pub id: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found, in one sentence without a full stop.
    pub sentence: String,
    /// What the sentence rests on: figures, files, lines of a log.
    pub evidence: Vec<String>,
    /// One thing to do, a command or a setting; always there where the status is a warning or worse.
    pub fix: Option<String>,
}

impl Check {
    fn new(id: &'static str, status: Status, sentence: impl Into<String>) -> Check {
        Check {
            id,
            status,
            sentence: sentence.into(),
            evidence: Vec::new(),
            fix: None,
        }
    }

    pub(super) fn pass(id: &'static str, sentence: impl Into<String>) -> Check {
        Check::new(id, Status::Pass, sentence)
    }

    pub(super) fn skip(id: &'static str, sentence: impl Into<String>) -> Check {
        Check::new(id, Status::Skip, sentence)
    }

    pub(super) fn warn(
        id: &'static str,
        sentence: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        let check = Check::new(id, Status::Warn, sentence);
        Check {
            fix: Some(fix.into()),
            ..check
        }
    }

    pub(super) fn fail(
        id: &'static str,
        sentence: impl Into<String>,
        fix: impl Into<String>,
    ) -> Check {
        Check {
            status: Status::Fail,
            ..Check::warn(id, sentence, fix)
        }
    }

    /// Adds a line of evidence.
    pub(super) fn because(mut self, line: impl Into<String>) -> Check {
        self.evidence.push(line.into());
        self
    }

    /// Adds lines of evidence.
    pub(super) fn because_of(
        mut self,
        lines: impl IntoIterator<Item = impl Into<String>>,
    ) -> Check {
        self.evidence.extend(lines.into_iter().map(Into::into));
        self
    }
}
