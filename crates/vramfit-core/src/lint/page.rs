//! The page `docs/reference/lint-rules.md`, made from the rules.

use std::fmt::Write as _;

use super::rules::THEMES;

const NEVER_FAILS: &str = "writing to a string does not fail";

const INTRODUCTION: &str = "\
# What vramfit finds wrong with settings

These rules look at the environment variables of a JAX program, at the installed release, at the GPUs
and who holds them. This page is made from the rules themselves
(`crates/vramfit-core/src/lint/rules/`). What each variable does is in [settings.md](settings.md).

An **error** ends the program, leaves it without the GPU, or does the opposite of what is written. A
**warning** is a setting that will not do what it was meant to. A **note** is worth knowing.

A rule speaks only of what it knows. Without a driver nothing is said about the room on a GPU; where
the release of JAX is not known, the newest that vramfit knows (0.11.0) is assumed, and no name is
said to be missing from it.
";

/// Writes the page.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for theme in THEMES {
        write!(page, "\n## {}\n", theme.title).expect(NEVER_FAILS);
        for rule in theme.rules {
            write!(
                page,
                "\n### {}\n\n*{}*. {}\n\n- *fix*: {}\n",
                rule.id,
                rule.severity.word(),
                rule.meaning,
                rule.cure
            )
            .expect(NEVER_FAILS);
        }
    }
    page
}
