//! A summary in Markdown, for a comment or the page of a job.

use crate::bytes::Bytes;
use crate::check::report::{Row, signed};
use crate::check::{CheckReport, LockLine};

impl CheckReport {
    /// Returns the summary.
    pub fn to_markdown(&self) -> String {
        let headline = cell(&self.headline());
        let mut lines = vec![format!("### GPU memory: {headline}"), String::new()];
        let base = match &*self.base {
            "" => "merge base",
            base => base,
        };
        lines.push(format!("| entry | GPU | peak | to accepted | to {} | result |", cell(base)));
        lines.push("| --- | --- | ---: | ---: | ---: | --- |".to_owned());
        lines.extend(self.rows.iter().map(table_line));
        for problem in self.problems() {
            lines.push(String::new());
            lines.push(format!("**{}**", cell(&problem.summary)));
            if !problem.details.is_empty() {
                lines.push(String::new());
                // A fence longer than any in the text cannot be closed by it.
                lines.push("````text".to_owned());
                lines.extend(problem.details);
                lines.push("````".to_owned());
            }
        }
        for summary in self.qualified_summaries() {
            lines.push(String::new());
            lines.push(cell(&summary));
        }
        if let Some(command) = self.update_command() {
            lines.push(String::new());
            lines.push(format!("To accept what was measured: `{command}`"));
        }
        for note in &self.notes {
            lines.push(String::new());
            lines.push(cell(note));
        }
        lines.join("\n") + "\n"
    }
}

fn table_line(row: &Row) -> String {
    let measured = row.measured.as_ref();
    let to = |other: &Option<LockLine>| match (measured, other) {
        (Some(measured), Some(other)) => signed(measured.peak_change(other)),
        _ => String::new(),
    };
    let mark = if row.outcome.passes() == Some(false) { "**" } else { "" };
    let result = format!("{mark}{}{mark}", row.result());
    format!(
        "| {} | {} | {} | {} | {} | {result} |",
        cell(&row.entry),
        cell(&row.gpu),
        measured.map_or_else(String::new, |line| Bytes(line.figures.peak_bytes).to_string()),
        to(&row.accepted),
        to(&row.base),
    )
}

/// Escapes what would end a cell or a line, or be read as markup.
pub(super) fn cell(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push(' '),
            '|' | '*' | '_' | '<' | '\\' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}
