//! For a terminal.

use crate::check::CheckReport;
use crate::check::outcome::Outcome;
use crate::check::report::Row;
use crate::report::qualify_headline;

impl CheckReport {
    /// Returns the text, with a line feed at its end. If it is `full`, it names every line that changed.
    pub fn to_text(&self, full: bool) -> String {
        let mut lines = Vec::new();
        for problem in self.problems() {
            lines.push(problem.summary);
            let details = match full {
                true => problem.row.details(&self.base, usize::MAX),
                false => problem.details,
            };
            lines.extend(details.into_iter().map(|line| format!("  {line}")));
        }
        let quiet: Vec<_> = self
            .rows
            .iter()
            .filter(|row| row.outcome.passes() == Some(true))
            .filter(|row| row.accepted_change().is_none_or(|change| change < 0))
            .collect();
        let is_plain =
            |row: &&&Row| row.outcome == Outcome::Unchanged && !row.is_of_other_versions();
        // Those that depend on the same are one line.
        let mut unchanged: Vec<(&Row, Vec<String>)> = Vec::new();
        let qualified = |row: &Row, names: &str| {
            qualify_headline("unchanged", names, row.conditions(), "each dry run")
        };
        for row in quiet.iter().filter(is_plain) {
            let mut same = unchanged.iter_mut();
            match same.find(|(other, _)| qualified(other, "") == qualified(row, "")) {
                Some((_, names)) => names.push(row.name()),
                None => unchanged.push((row, vec![row.name()])),
            }
        }
        let unchanged = unchanged.iter();
        lines.extend(unchanged.map(|(row, names)| qualified(row, &names.join(", "))));
        let others = quiet.iter().filter(|row| !is_plain(row));
        lines.extend(others.map(|row| row.summary()));
        if let Some(command) = self.update_command() {
            lines.push(format!("to accept what was measured: {command}"));
        } else if self.rows.iter().any(|row| row.outcome == Outcome::Smaller) {
            lines.push("to accept the smaller figures: vramfit check --update".to_owned());
        } else if self.rows.iter().any(Row::is_of_other_versions) {
            lines
                .push("to accept the figures of these versions: vramfit check --update".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n") + "\n"
    }
}
