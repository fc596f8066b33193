//! What XLA's compiler warned of: its own words about the memory of a program.

use serde::Serialize;

/// What the compiler warned of while it compiled a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompilerWarning {
    /// Name of the program. Of several that were compiled at the same time, the one begun last.
    pub program: String,
    /// The source file of XLA that speaks, such as `hlo_rematerialization.cc`; or [`Self::NOT_ATTRIBUTED`].
    pub source: String,
    /// What it says.
    pub text: String,
    /// How often it said the same of programs of that name.
    pub count: u64,
}

impl CompilerWarning {
    /// The source of a warning that it is not known what the memory of a program belongs to.
    pub const NOT_ATTRIBUTED: &'static str = "attribution";
}

/// Beyond this a run only repeats itself; what comes later is not kept.
const MAX_KEPT: usize = 1024;

/// Adds what a record holds: program, source and text, with line ends between them. Equal warnings are
/// counted together, in the order of their first.
pub(super) fn add(list: &mut Vec<CompilerWarning>, body: &str) {
    let mut parts = body.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (program, source, text) = (part(), part(), part());
    let same = |old: &&mut CompilerWarning| {
        (&old.program, &old.source, &old.text) == (&program, &source, &text)
    };
    if let Some(old) = list.iter_mut().find(same) {
        old.count += 1;
    } else if list.len() < MAX_KEPT {
        list.push(CompilerWarning { program, source, text, count: 1 });
    }
}

/// Returns what the record of a warning holds.
pub(super) fn body(program: &str, source: &str, text: &str) -> String {
    // A line end is what parts are told apart by.
    let one_line = |text: &str| text.replace('\n', " ");
    format!("{}\n{}\n{text}", one_line(program), one_line(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_warnings_are_counted_and_others_kept_apart() {
        let mut warnings = Vec::new();
        for program in ["jit_step", "jit_step", "jit_\nother"] {
            add(&mut warnings, &body(program, "a.cc", "Can't reduce\nmemory"));
        }
        let told: Vec<_> =
            warnings.iter().map(|warning| (warning.program.as_str(), warning.count)).collect();
        assert_eq!(told, [("jit_step", 2), ("jit_ other", 1)]);
        assert_eq!(warnings[0].text, "Can't reduce\nmemory");
        add(&mut warnings, "");
        assert_eq!(warnings[2].text, "");
    }
}
