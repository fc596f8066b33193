//! A table for a spreadsheet: exact bytes, and no cell that a spreadsheet would run.

use super::escape::plain;
use crate::report::{BufferLifetimes, Content, Report, Table, Value};

/// Renders the largest table of a report; the buffers of a program are a table, too.
pub(in crate::report) fn render(report: &Report) -> String {
    let sections = report.sections.iter();
    let tables = sections.filter_map(|section| match &section.content {
        Content::BufferLifetimes(it) => Some(((it.buffers.len(), section.detail), buffers(it))),
        Content::Table(it) => Some(((it.rows.len(), section.detail), table(it))),
        _ => None,
    });
    // Of equals the one with details, and of those the first.
    let largest = tables.reduce(|best, other| if other.0 > best.0 { other } else { best });
    largest.map_or_else(String::new, |(_, text)| text)
}

fn table(table: &Table) -> String {
    let mut text = line(table.columns.iter().map(|name| cell(name)));
    for row in &table.rows {
        text.push_str(&line(row.iter().map(|value| match value {
            Value::Bytes(number) | Value::Count(number) => number.to_string(),
            Value::Change(change) => change.to_string(),
            Value::Fraction(fraction) => fraction.to_string(),
            Value::Text(text) => cell(text),
            Value::Missing(why) => cell(why),
        })));
    }
    text
}

fn buffers(lifetimes: &BufferLifetimes) -> String {
    let names = [
        "buffer",
        "kind",
        "bytes",
        "offset",
        "start",
        "end",
        "first_instruction",
        "last_instruction",
        "note",
        "stack",
    ];
    let mut text = line(names.iter().map(|name| (*name).to_owned()));
    let instruction = |at: u32| {
        let names = &lifetimes.instructions;
        names.get(at as usize).map_or("", String::as_str)
    };
    let mut largest_first: Vec<_> = lifetimes.buffers.iter().collect();
    largest_first.sort_by_key(|buffer| std::cmp::Reverse(buffer.bytes));
    for buffer in largest_first {
        text.push_str(&line([
            cell(&buffer.label),
            cell(buffer.kind),
            buffer.bytes.to_string(),
            buffer.offset.to_string(),
            buffer.start.to_string(),
            buffer.end.to_string(),
            cell(instruction(buffer.start)),
            cell(instruction(buffer.end)),
            cell(&buffer.note),
            cell(&buffer.stack),
        ]));
    }
    text
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    cells.join(",") + "\r\n"
}

/// Writes a text as a cell: a spreadsheet takes what begins like a formula for one, so an apostrophe
/// goes before it, and quotes keep commas inside.
fn cell(text: &str) -> String {
    let mut safe = plain(text);
    if safe.trim_start().starts_with(['=', '+', '-', '@']) {
        safe.insert(0, '\'');
    }
    if safe.contains([',', '"', '\'', ';']) || safe.trim() != safe {
        safe = format!("\"{}\"", safe.replace('"', "\"\""));
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_never_formulas() {
        for (text, written) in [
            ("fusion.12", "fusion.12"),
            ("f32[8,128]", "\"f32[8,128]\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("=HYPERLINK(1)", "\"'=HYPERLINK(1)\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1+1", "\"' =1+1\""),
            ("a\r\nb", "a  b"),
        ] {
            assert_eq!(cell(text), written);
        }
    }
}
