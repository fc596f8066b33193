//! What do the rules about settings find in the environment?

use super::super::check::Check;
use super::super::facts::Facts;
use crate::lint::{self, Finding, Severity, Surroundings};

const ID: &str = "settings";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let findings = findings(facts);
    let (notes, wrong): (Vec<_>, Vec<_>) = findings
        .into_iter()
        .partition(|finding| finding.severity == Severity::Note);
    // Nothing is wrong, but who set it believes something else; so it is said without `--verbose`.
    let note = |note: &Finding| {
        let Finding {
            subject, message, ..
        } = note;
        Check::pass(ID, format!("note: `{subject}`: {message}; {}", note.fix)).because(format!(
            "rule `{}`, explained in docs/reference/lint-rules.md",
            note.id
        ))
    };
    let notes = notes.iter().map(note);
    if wrong.is_empty() {
        let sentence = "the environment says nothing that JAX would not understand";
        return std::iter::once(Check::pass(ID, sentence))
            .chain(notes)
            .collect();
    }
    let check = |finding: &Finding| {
        let (subject, message) = (&finding.subject, &finding.message);
        let sentence = match message.contains(subject) {
            true => message.clone(),
            false => format!("`{subject}`: {message}"),
        };
        let fix = finding.fix.clone();
        let check = match finding.severity {
            Severity::Error => Check::fail(ID, sentence, fix),
            Severity::Warning | Severity::Note => Check::warn(ID, sentence, fix),
        };
        check.because(format!(
            "rule `{}`, explained in docs/reference/lint-rules.md",
            finding.id
        ))
    };
    wrong.iter().map(check).chain(notes).collect()
}

/// Applies the rules to what a program started here would get.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let has_jax = facts.inventory.jax().is_some();
    lint::lint(&Surroundings {
        environment: facts.environment.clone(),
        jax: facts.inventory.jax(),
        machine: facts.machine(),
        packages: has_jax.then(|| facts.inventory.for_rules()),
        ..Surroundings::default()
    })
}
