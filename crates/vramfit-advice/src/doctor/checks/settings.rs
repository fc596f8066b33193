//! What do the rules about settings find in the environment?

use super::super::check::Check;
use super::super::system_info::SystemInfo;
use crate::lint::{self, Finding, LintInput, Severity};

const ID: &str = "settings";

pub(super) fn check(info: &SystemInfo) -> Vec<Check> {
    let findings = findings(info);
    let (notes, wrong): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.severity == Severity::Note);
    // Nothing is wrong, but who set it believes something else; so it is said without `--verbose`.
    let note = |note: &Finding| {
        let Finding { subject, message, .. } = note;
        Check::pass(ID, format!("note: `{subject}`: {message}; {}", note.fix))
            .evidence_line(rule(note))
    };
    let notes = notes.iter().map(note);
    if wrong.is_empty() {
        let message = "no problems found in the environment variables";
        return std::iter::once(Check::pass(ID, message)).chain(notes).collect();
    }
    let check = |finding: &Finding| {
        let (subject, message) = (&finding.subject, &finding.message);
        let message = match message.contains(subject) {
            true => message.clone(),
            false => format!("`{subject}`: {message}"),
        };
        let fix = finding.fix.clone();
        let check = match finding.severity {
            Severity::Error => Check::fail(ID, message, fix),
            Severity::Warning | Severity::Note => Check::warn(ID, message, fix),
        };
        check.evidence_line(rule(finding))
    };
    wrong.iter().map(check).chain(notes).collect()
}

fn rule(finding: &Finding) -> String {
    let id = finding.id;
    format!("rule `{id}`, explained in docs/reference/lint-rules.md")
}

/// Applies the rules to what a program started here would get.
pub(super) fn findings(info: &SystemInfo) -> Vec<Finding> {
    let has_jax = info.inventory.jax().is_some();
    lint::lint(&LintInput {
        environment: info.environment.clone(),
        jax: info.inventory.jax(),
        host: info.host(),
        packages: has_jax.then(|| info.inventory.for_rules()),
        ..LintInput::default()
    })
}
