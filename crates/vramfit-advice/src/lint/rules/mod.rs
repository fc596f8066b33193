//! The rules, by group, in the order of the page.

mod booleans;
mod conflicts;
mod flags;
mod headroom;
mod launchers;
mod names;
mod other_frameworks;
mod timing;
mod values;

use super::Rule;

/// Rules that belong together on the page.
pub(super) struct RuleGroup {
    pub(super) title: &'static str,
    pub(super) rules: &'static [Rule],
}

pub(super) const RULE_GROUPS: &[RuleGroup] = &[
    RuleGroup { title: "Names", rules: names::RULES },
    RuleGroup { title: "The pool: fraction and allocator", rules: values::RULES },
    RuleGroup { title: "Booleans and numbers", rules: booleans::RULES },
    RuleGroup { title: "Conflicting settings", rules: conflicts::RULES },
    RuleGroup { title: "XLA_FLAGS", rules: flags::RULES },
    RuleGroup { title: "Memory headroom", rules: headroom::RULES },
    RuleGroup { title: "Other frameworks and devices", rules: other_frameworks::RULES },
    RuleGroup { title: "Containers and job launchers", rules: launchers::RULES },
    RuleGroup { title: "Timing", rules: timing::RULES },
];
