//! The result of a rule.

use std::collections::BTreeMap;

use serde::Serialize;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The program fails, runs without the GPU, or does the opposite of what the setting says.
    Error,
    /// The program runs, but not as the setting intends.
    Warning,
    /// Good to know; nothing is wrong.
    Note,
}

impl Severity {
    /// Returns its name in lower case.
    pub fn label(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A variable to set, or to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The variable.
    pub name: String,
    /// Its new value; `None` removes it.
    pub value: Option<String>,
}

impl Change {
    pub(super) fn set(name: &str, value: impl Into<String>) -> Change {
        Change { name: name.to_owned(), value: Some(value.into()) }
    }

    pub(super) fn unset(name: &str) -> Change {
        Change { name: name.to_owned(), value: None }
    }
}

/// A problem with the settings, or something good to know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule's stable ID, such as `conflicting-fractions`.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The variable it is about, or a GPU or package.
    pub subject: String,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do, in one sentence without a full stop.
    pub fix: String,
    /// What it costs on each GPU, in bytes, if known.
    pub cost_bytes: Option<u64>,
    /// The fix as a program can apply it; empty if it must be applied by hand.
    pub changes: Vec<Change>,
}

/// A finding without the ID and severity of its rule.
pub(super) struct RawFinding {
    pub(super) subject: String,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) cost_bytes: Option<u64>,
    pub(super) changes: Vec<Change>,
}

impl RawFinding {
    pub(super) fn new(
        subject: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> RawFinding {
        RawFinding {
            subject: subject.into(),
            message: message.into(),
            fix: fix.into(),
            cost_bytes: None,
            changes: Vec::new(),
        }
    }

    pub(super) fn with_cost(self, bytes: u64) -> RawFinding {
        RawFinding { cost_bytes: Some(bytes), ..self }
    }

    pub(super) fn with_change(self, change: Change) -> RawFinding {
        self.with_changes([change])
    }

    pub(super) fn with_changes(mut self, changes: impl IntoIterator<Item = Change>) -> RawFinding {
        self.changes.extend(changes);
        self
    }
}

/// Applies the fixes that a program can apply. Of two that change the same variable the first wins:
/// lint again afterwards, or call [`super::autofix`].
pub fn apply(
    environment: &BTreeMap<String, String>,
    findings: &[Finding],
) -> BTreeMap<String, String> {
    let mut result = environment.clone();
    let mut touched: Vec<&str> = Vec::new();
    for finding in findings {
        let names = || finding.changes.iter().map(|change| change.name.as_str());
        if names().any(|name| touched.contains(&name)) {
            continue;
        }
        touched.extend(names());
        for Change { name, value } in &finding.changes {
            match value {
                Some(value) => result.insert(name.clone(), value.clone()),
                None => result.remove(name),
            };
        }
    }
    result
}
