//! Checks the settings that a JAX program is started with, and fixes them.
//!
//! | file | what it is |
//! | --- | --- |
//! | `input.rs` | the input of the rules: plain values |
//! | `context.rs` | the input as JAX interprets it |
//! | `rules/` | one function per rule, one file per group |
//! | `names.rs`, `names/` | the names that each release of JAX reads, as recorded from its sources |
//! | `finding.rs` | the result of a rule, with its fix as changes of variables |
//! | `page.rs` | the page `docs/reference/lint-rules.md`, generated from the rules |
//!
//! What each variable does is in [`crate::settings`]; the rules keep no second table.
//! Nothing here reads this process, its host or its files.

mod context;
mod finding;
mod input;
mod names;
mod page;
mod rules;

use std::collections::BTreeMap;

pub use finding::{Change, Finding, Severity, apply};
pub use input::{LintInput, Packages};
pub use page::markdown;

use context::LintContext;
use finding::RawFinding;

/// A rule about settings.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its stable ID: lower-case words with dashes.
    pub id: &'static str,
    /// Severity of its findings.
    pub severity: Severity,
    /// What it finds and why that is wrong, in a sentence or two.
    pub meaning: &'static str,
    /// What to do, in a sentence or two.
    pub fix: &'static str,
    check: fn(&LintContext<'_>) -> Vec<RawFinding>,
}

/// Returns every rule, in the order of the page.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::RULE_GROUPS.iter().flat_map(|group| group.rules)
}

/// Rules that find what prevents JAX from using any GPU, or ends the process: after a rejected value JAX falls
/// back to the CPU, with an invalid option `import jax` fails, on an invalid flag XLA aborts. A fraction out
/// of range is among them, because its pool is never intended.
const GPU_BLOCKING_RULES: [&str; 13] = [
    "fraction-not-a-number",
    "fraction-out-of-range",
    "allocator-unknown",
    "conflicting-fractions",
    "not-a-boolean",
    "not-a-number",
    "platform-unknown",
    "create-options-malformed",
    "flag-without-dashes",
    "flag-of-another-program",
    "flag-misspelled",
    "flag-not-in-this-release",
    "flag-value",
];

/// The rule about a GPU whose compute mode keeps programs out.
pub const CLOSED_GPU_RULE: &str = "gpu-is-exclusive";

impl Finding {
    /// Returns whether the program cannot use the GPU as intended, so that a dry run would be meaningless.
    pub fn prevents_gpu_use(&self) -> bool {
        self.severity == Severity::Error && GPU_BLOCKING_RULES.contains(&self.id)
    }
}

/// Applies all rules; returns the findings, errors first.
pub fn lint(input: &LintInput) -> Vec<Finding> {
    let context = LintContext { input };
    let mut findings: Vec<Finding> = rules()
        .flat_map(|rule| {
            (rule.check)(&context).into_iter().map(|found| Finding {
                id: rule.id,
                severity: rule.severity,
                subject: found.subject,
                message: found.message,
                fix: found.fix,
                cost_bytes: found.cost_bytes,
                changes: found.changes,
            })
        })
        .collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Passes of [`autofix`]. A fix can reveal another problem: once a misspelled name is corrected, its value
/// is checked.
const MAX_FIX_PASSES: usize = 8;

/// Applies fixes until none is left that a program could apply, and returns the environment.
pub fn autofix(input: &LintInput) -> BTreeMap<String, String> {
    let mut fixed = input.clone();
    for _ in 0..MAX_FIX_PASSES {
        let environment = apply(&fixed.environment, &lint(&fixed));
        if environment == fixed.environment {
            break;
        }
        fixed.environment = environment;
    }
    fixed.environment
}
