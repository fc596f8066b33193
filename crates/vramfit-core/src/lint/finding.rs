//! What a rule has to say, as a value.

use std::collections::BTreeMap;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The program dies, goes on without the GPU, or does the opposite of what is written.
    Error,
    /// The program runs, and not as whoever wrote the setting will have meant.
    Warning,
    /// Worth knowing; nothing is wrong.
    Note,
}

impl Severity {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
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
        Change {
            name: name.to_owned(),
            value: Some(value.into()),
        }
    }

    pub(super) fn unset(name: &str) -> Change {
        Change {
            name: name.to_owned(),
            value: None,
        }
    }
}

/// One thing that is wrong, or worth knowing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule's lasting name, such as `two-fractions`.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The variable it is about, or what else: a GPU, a package.
    pub subject: String,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// What to do, in one sentence without a full stop.
    pub fix: String,
    /// What it costs on each GPU, in bytes, where that can be said.
    pub cost_bytes: Option<u64>,
    /// The fix as a program can apply it; empty where it takes a person.
    pub changes: Vec<Change>,
}

/// A finding of one rule, before the rule's name and severity are put to it.
pub(super) struct Found {
    pub(super) subject: String,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) cost_bytes: Option<u64>,
    pub(super) changes: Vec<Change>,
}

impl Found {
    pub(super) fn new(
        subject: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Found {
        Found {
            subject: subject.into(),
            message: message.into(),
            fix: fix.into(),
            cost_bytes: None,
            changes: Vec::new(),
        }
    }

    pub(super) fn cost(self, bytes: u64) -> Found {
        Found {
            cost_bytes: Some(bytes),
            ..self
        }
    }

    pub(super) fn change(mut self, change: Change) -> Found {
        self.changes.push(change);
        self
    }
}

/// Applies the fixes that a program can apply. Of two that touch the same variable the first counts:
/// look again afterwards, or call [`super::mend`].
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
