//! Documents generated from the table of keys: `docs/reference/training-config.md` and the template.

use std::fmt::Write as _;

use vramfit_base::text::wrap;

use super::key::{DefaultValue, Key, ValueType};
use super::keys::{SECTIONS, keys};

const NEVER_FAILS: &str = "writing to a string does not fail";

/// Columns of a comment in the template.
const WIDTH: usize = 90;

const INTRODUCTION: &str = "\
# Training configuration reference

[`vramfit train`](../commands/train.md) reads one TOML file. `vramfit train --init train.toml` writes a template
in which every key is explained. This page is generated from `crates/vramfit-train/src/keys/`.

Unknown keys, invalid values, and keys without effect are errors. `--set data.batch_size=64` on the command line
overrides the file. A path in the file is relative to the file; one in `--set` is relative to the current directory.

A run resumes from its checkpoint only with the same values, except for keys marked *may change*.
`--force-resume` resumes with other values, too.
";

/// Returns the reference page in Markdown.
pub fn reference_page() -> String {
    let mut page = String::from(INTRODUCTION);
    for section in SECTIONS {
        write!(
            page,
            "\n## `[{}]`\n\n{}\n\n| key | value | default | description |\n\
             | --- | --- | --- | --- |\n",
            section.name, section.description
        )
        .expect(NEVER_FAILS);
        for key in keys().filter(|key| key.section == section.name) {
            let change = if key.resumable { " *May change.*" } else { "" };
            writeln!(
                page,
                "| `{}` | {} | {} | {}{change} |",
                key.name,
                key.value_type.describe(),
                default_text(key),
                key.description
            )
            .expect(NEVER_FAILS);
        }
    }
    page
}

fn default_text(key: &Key) -> String {
    match key.default {
        DefaultValue::Required(example) => format!("required, such as `{example}`"),
        DefaultValue::Value(value) => format!("`{value}`"),
        DefaultValue::Unset(meaning, _) => meaning.to_owned(),
    }
}

/// Returns a configuration file with every key: some set, the others in comments. `proposed` has values for some
/// keys (`data.path`) in TOML.
pub fn template(proposed: &[(&str, String)]) -> String {
    let mut file = String::from(
        "# Configuration for `vramfit train`. Lines that are commented out show the default, or an\n\
         # example. `vramfit train --check FILE` checks the file and shows the plan.\n",
    );
    for section in SECTIONS {
        write!(file, "\n[{}]\n", section.name).expect(NEVER_FAILS);
        for key in keys().filter(|key| key.section == section.name) {
            let allowed = match key.value_type {
                ValueType::Choice(_) | ValueType::ChoiceOrPython(..) | ValueType::Number(..) => {
                    format!(" Must be {}.", key.value_type.describe())
                }
                _ => String::new(),
            };
            let unset = match key.default {
                DefaultValue::Unset(meaning, _) => format!(" Default: {meaning}."),
                _ => String::new(),
            };
            let comment = format!("{}{allowed}{unset}", key.description);
            for line in wrap(&comment.replace('`', "'"), WIDTH, 0) {
                writeln!(file, "# {line}").expect(NEVER_FAILS);
            }
            let dotted = key.dotted();
            let value = proposed.iter().find(|(name, _)| *name == dotted);
            let line = match value {
                Some((_, value)) => format!("{} = {value}", key.name),
                None if key.in_template => key.line(),
                None => format!("#{}", key.line()),
            };
            writeln!(file, "{line}").expect(NEVER_FAILS);
        }
    }
    file
}
