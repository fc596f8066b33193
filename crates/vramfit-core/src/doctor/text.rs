//! The examination for a person: one line a check, more where something is wrong.

use super::{Check, Examination, Status};
use crate::report::wrap;

/// A line of output: the status where it begins a check, so that it can be coloured, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The status with which the line begins.
    pub status: Option<Status>,
    /// What follows it.
    pub text: String,
}

const COLUMNS: usize = 100;

/// Where the sentences begin: behind the status and the name.
const INDENT: usize = 20;

/// Returns the lines of an examination. With `detail` the evidence of every check is told, else only
/// where something is wrong; `quiet` leaves out what is as it should be.
pub fn lines(examination: &Examination, quiet: bool, detail: bool) -> Vec<Line> {
    let shown = |check: &&Check| !(quiet && check.status == Status::Pass);
    let mut all = Vec::new();
    for check in examination.checks.iter().filter(shown) {
        let head = format!("  {:<14}", check.id);
        let mut sentences = wrap(&check.sentence, COLUMNS - INDENT, 0).into_iter();
        all.push(Line {
            status: Some(check.status),
            text: format!("{head}{}", sentences.next().unwrap_or_default()),
        });
        all.extend(sentences.map(indented));
        let is_wrong = matches!(check.status, Status::Warn | Status::Fail);
        if detail || is_wrong {
            let evidence = check.evidence.iter().flat_map(|entry| entry.lines());
            for line in evidence {
                let wrapped = wrap(line.trim_end(), COLUMNS - INDENT - 2, 2);
                all.extend(
                    wrapped
                        .into_iter()
                        .map(|line| indented(format!("  {line}"))),
                );
            }
        }
        // A command is not broken: it is there to be copied.
        let fix = check.fix.as_ref();
        all.extend(fix.map(|fix| indented(format!("fix: {fix}"))));
    }
    all
}

fn indented(text: impl AsRef<str>) -> Line {
    Line {
        status: None,
        text: format!("{:INDENT$}{}", "", text.as_ref()),
    }
}

/// Returns the verdict in one line.
pub fn summary(examination: &Examination) -> String {
    let of = |status, one: &str, many: &str| {
        let count = examination.count(status);
        let word = if count == 1 { one } else { many };
        (count > 0).then(|| format!("{count} {word}"))
    };
    let counts: Vec<String> = [
        of(Status::Fail, "fails", "fail"),
        of(Status::Warn, "warning", "warnings"),
        of(Status::Pass, "passed", "passed"),
        of(Status::Skip, "skipped", "skipped"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let verdict = match (examination.is_all_right(), examination.count(Status::Warn)) {
        (false, _) => "not all right",
        (true, 0) => "all right",
        (true, _) => "all right, with warnings",
    };
    format!("{verdict}: {}", counts.join(", "))
}
