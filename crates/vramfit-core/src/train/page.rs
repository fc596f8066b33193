//! What is made of the table of keys: the page `docs/reference/training-config.md`, and a file to begin with.

use std::fmt::Write as _;

use super::key::{Form, Key, Unless};
use super::keys::{SECTIONS, keys};
use crate::report::wrap;

const NEVER_FAILS: &str = "writing to a string does not fail";

/// Columns of a comment in the file.
const WIDTH: usize = 90;

const INTRODUCTION: &str = "\
# The file of a training run

[`vramfit train`](../commands/train.md) reads one TOML file. `vramfit train --init train.toml` writes one with
every key in it, explained. This page is made from the table that vramfit itself uses
(`crates/vramfit-core/src/train/keys.rs`).

A key that there is not is refused, with the nearest that there is; so is a value that cannot be, and a key
that would have no effect beside the others. `--set data.batch_size=64` on the command line wins over the
file. A path in the file is relative to the file; one in `--set` to the current directory.

A run that goes on from its checkpoint has to have the same values as before, except for those that say
*may change*: with other values it would not be the same run. `--force-resume` goes on all the same.
";

/// Writes the page.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for section in SECTIONS {
        write!(
            page,
            "\n## `[{}]`\n\n{}\n\n| key | value | unless it is there | meaning |\n\
             | --- | --- | --- | --- |\n",
            section.name, section.meaning
        )
        .expect(NEVER_FAILS);
        for key in keys().filter(|key| key.section == section.name) {
            let change = match key.may_change {
                true => " *May change.*",
                false => "",
            };
            writeln!(
                page,
                "| `{}` | {} | {} | {}{change} |",
                key.name,
                key.form.words(),
                unless(key),
                key.meaning
            )
            .expect(NEVER_FAILS);
        }
    }
    page
}

fn unless(key: &Key) -> String {
    match key.unless {
        Unless::Required(example) => format!("must be there, such as `{example}`"),
        Unless::Value(value) => format!("`{value}`"),
        Unless::Nothing(words, _) => words.to_owned(),
    }
}

/// Writes a file with every key: those that a run begins with as lines, the others as comments. `proposed` has
/// values for some keys (`data.path`), as TOML.
pub fn starting_file(proposed: &[(&str, String)]) -> String {
    let mut file = String::from(
        "# What `vramfit train` reads. Each line that is commented out shows what holds without it,\n\
         # or an example. `vramfit train --check FILE` says what will be done, and starts nothing.\n",
    );
    for section in SECTIONS {
        write!(file, "\n[{}]\n", section.name).expect(NEVER_FAILS);
        for key in keys().filter(|key| key.section == section.name) {
            let words = match key.form {
                Form::OneOf(_) | Form::Number(..) => format!(" It is {}.", key.form.words()),
                _ => String::new(),
            };
            let without = match key.unless {
                Unless::Nothing(words, _) => format!(" Without it: {words}."),
                _ => String::new(),
            };
            let comment = format!("{}{words}{without}", key.meaning);
            for line in wrap(&comment.replace('`', "'"), WIDTH, 0) {
                writeln!(file, "# {line}").expect(NEVER_FAILS);
            }
            let dotted = key.dotted();
            let value = proposed.iter().find(|(name, _)| *name == dotted);
            let line = match value {
                Some((_, value)) => format!("{} = {value}", key.name),
                None if key.starts => key.line(),
                None => format!("#{}", key.line()),
            };
            writeln!(file, "{line}").expect(NEVER_FAILS);
        }
    }
    file
}
