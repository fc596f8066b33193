//! The page `docs/reference/lint-rules.md`, made from the rules.

use std::fmt::Write as _;

use super::rules::RULE_GROUPS;

const NEVER_FAILS: &str = "writing to a string does not fail";

const INTRODUCTION: &str = "\
# Lint rules

These rules check the environment variables of a JAX program against the installed release, the GPUs and
the processes that use them. This page is generated from the rules
(`crates/vramfit-advice/src/lint/rules/`). What each variable does is in [settings.md](settings.md).

An **error** makes the program fail or run without the GPU, or does the opposite of what the setting
says. A **warning** is a setting that does not have the intended effect. A **note** is good to know.

A rule only reports what is certain. Without a driver there are no findings about the memory of a GPU; if
the JAX release is unknown, the latest one that vramfit knows (0.12.0) is assumed, and no name is reported
as missing from it.
";

/// Writes the page.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for group in RULE_GROUPS {
        write!(page, "\n## {}\n", group.title).expect(NEVER_FAILS);
        for rule in group.rules {
            write!(
                page,
                "\n### {}\n\n*{}*. {}\n\n- *fix*: {}\n",
                rule.id,
                rule.severity.label(),
                rule.meaning,
                rule.fix
            )
            .expect(NEVER_FAILS);
        }
    }
    page
}
