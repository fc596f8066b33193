//! The report as text: one line per check, more for problems.

use vramfit_base::text::wrap;

use super::{Check, DoctorReport, Status};

/// A line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The status, which is colored, if the line begins a check.
    pub status: Option<Status>,
    /// The rest of the line.
    pub text: String,
}

/// Columns of lines that are not for a terminal.
pub const COLUMNS: usize = 100;

/// The column of the messages, after status and ID.
const INDENT: usize = 20;

/// Returns the lines of a report. With `detail` the evidence of every check is included, else only that of
/// problems; `quiet` omits checks that passed. Lines have at most `columns`, but for commands.
pub fn lines(report: &DoctorReport, quiet: bool, detail: bool, columns: usize) -> Vec<Line> {
    let shown = |check: &&Check| !(quiet && check.status == Status::Pass);
    let mut all = Vec::new();
    for check in report.checks.iter().filter(shown) {
        let head = format!("  {:<14}", check.id);
        let mut message_lines = wrap(&check.message, columns - INDENT, 0).into_iter();
        all.push(Line {
            status: Some(check.status),
            text: format!("{head}{}", message_lines.next().unwrap_or_default()),
        });
        all.extend(message_lines.map(indented));
        let is_problem = matches!(check.status, Status::Warn | Status::Fail);
        if detail || is_problem {
            let evidence = check.evidence.iter().flat_map(|entry| entry.lines());
            for line in evidence {
                let wrapped = wrap(line.trim_end(), columns - INDENT - 2, 2);
                all.extend(wrapped.into_iter().map(|line| indented(format!("  {line}"))));
            }
        }
        // Commands are not wrapped, so that they can be copied.
        let fix = check.fix.as_ref();
        all.extend(fix.map(|fix| indented(format!("fix: {fix}"))));
    }
    all
}

fn indented(text: impl AsRef<str>) -> Line {
    Line { status: None, text: format!("{:INDENT$}{}", "", text.as_ref()) }
}

/// Returns the summary line, such as `1 check failed, 2 warnings, 13 passed`.
pub fn summary(report: &DoctorReport) -> String {
    let count_of = |status, one: &str, many: &str| {
        let count = report.count(status);
        let label = if count == 1 { one } else { many };
        (count > 0).then(|| format!("{count} {label}"))
    };
    let counts = [
        count_of(Status::Fail, "check failed", "checks failed"),
        count_of(Status::Warn, "warning", "warnings"),
        count_of(Status::Pass, "passed", "passed"),
        count_of(Status::Skip, "skipped", "skipped"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let counts = counts.join(", ");
    if report.passed() { format!("no check failed: {counts}") } else { counts }
}
