//! What is wrong with the settings a JAX program is started with, and what mends it.
//!
//! | file | what it is |
//! | --- | --- |
//! | `surroundings.rs` | all that the rules may know: plain values |
//! | `scene.rs` | the same as JAX would read it |
//! | `rules/` | one function a rule, one file a theme |
//! | `names.rs`, `names/` | the names that each release of JAX reads, as recorded from its sources |
//! | `finding.rs` | what a rule says, and its fix as changes of variables |
//! | `page.rs` | the page `docs/reference/lint-rules.md`, made from the rules |
//!
//! What each variable does is in [`crate::settings`]; the rules ask it and keep no second table.
//! Nothing here looks at this process, its machine or its files.

mod finding;
mod names;
mod page;
mod rules;
mod scene;
mod surroundings;

use std::collections::BTreeMap;

pub use finding::{Change, Finding, Severity, apply};
pub use names::is_ours as concerns_jax;
pub use page::markdown;
pub use surroundings::{LateChange, Packages, Stage, Surroundings};

use finding::Found;
use scene::Scene;

/// A rule: what it is called and what it means. What it does is its own business.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its lasting name: words in lower case with dashes.
    pub id: &'static str,
    /// How bad it is when it finds something.
    pub severity: Severity,
    /// What it finds and why that is wrong, in a sentence or two.
    pub meaning: &'static str,
    /// What to do, in a sentence or two.
    pub cure: &'static str,
    check: fn(&Scene<'_>) -> Vec<Found>,
}

/// Returns every rule, in the order of the page.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::THEMES.iter().flat_map(|theme| theme.rules)
}

/// Rules that find what keeps JAX off every GPU or ends the process: by a refused value JAX goes on with
/// the CPU only, by a bad option of its own `import jax` fails, at a bad flag XLA aborts. A fraction out
/// of range is among them, because its pool is what nobody can have meant.
const NO_GPU: [&str; 13] = [
    "fraction-not-a-number",
    "fraction-out-of-range",
    "allocator-unknown",
    "two-fractions",
    "not-a-truth-value",
    "not-a-number",
    "platform-unknown",
    "create-options-malformed",
    "flag-without-dashes",
    "flag-of-another-program",
    "flag-misspelt",
    "flag-not-in-this-release",
    "flag-value",
];

impl Finding {
    /// Says whether a program in these surroundings uses no GPU, or not the one that can be meant: it
    /// makes no sense to ask what it would do there.
    pub fn leaves_no_gpu(&self) -> bool {
        self.severity == Severity::Error && NO_GPU.contains(&self.id)
    }
}

/// Looks for everything that is wrong, worst first.
pub fn lint(surroundings: &Surroundings) -> Vec<Finding> {
    let scene = Scene { surroundings };
    let mut findings: Vec<Finding> = rules()
        .flat_map(|rule| {
            (rule.check)(&scene).into_iter().map(|found| Finding {
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

/// Rounds of [`mend`]. A fix can bring to light what it hid: a name that was misspelt gets a reader,
/// and only then its value counts.
const ROUNDS: usize = 8;

/// Applies fixes until nothing is left that a program could mend, and returns the environment.
pub fn mend(surroundings: &Surroundings) -> BTreeMap<String, String> {
    let mut mended = surroundings.clone();
    for _ in 0..ROUNDS {
        let environment = apply(&mended.environment, &lint(&mended));
        if environment == mended.environment {
            break;
        }
        mended.environment = environment;
    }
    mended.environment
}
