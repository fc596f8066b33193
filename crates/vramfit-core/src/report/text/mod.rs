//! A report for a terminal: 80 columns, no colours, nothing that a name could do to the terminal.

use super::escape::plain;
use super::{Bar, Body, Figure, Report, Table};
use crate::bytes::Bytes;

/// Columns that every terminal has.
const WIDTH: usize = 80;
/// Columns between two columns of a table.
const GAP: usize = 2;
/// Narrowest column of names in a table; others are cut to it before the table grows wider.
const NARROWEST_NAME: usize = 8;

/// Renders a report; the first line is the answer.
pub(super) fn render(report: &Report) -> String {
    let mut lines = wrap(&report.answer, WIDTH, 2);
    for section in &report.sections {
        lines.push(String::new());
        let indent = if section.title.is_empty() {
            0
        } else {
            lines.extend(wrap(&section.title, WIDTH, 2));
            2
        };
        let body = match &section.body {
            Body::Text(points) => points
                .iter()
                .flat_map(|point| wrap(&format!("- {point}"), WIDTH - indent, 2))
                .collect(),
            Body::Figures(figures) => render_figures(figures, WIDTH - indent),
            Body::Table(table) => render_table(table, WIDTH - indent),
            Body::Bars(bars) => bars
                .iter()
                .map(|bar| render_bar(bar, WIDTH - indent))
                .collect(),
            Body::Tree(_) | Body::Timeline(_) | Body::Bands(_) | Body::Map(_) => Vec::new(),
        };
        lines.extend(body.into_iter().map(|line| format!("{:indent$}{line}", "")));
    }
    lines.push(String::new());
    let facts = report.facts.iter();
    let facts: Vec<_> = facts.map(|f| format!("{}: {}", f.label, f.value)).collect();
    for fact in facts {
        lines.extend(wrap(&fact, WIDTH, 2));
    }
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Units that follow a number.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "%"];

/// Returns a word without the punctuation around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c| matches!(c, ',' | ';' | ':' | '.' | ')'))
}

fn ends_in_digit(word: &str) -> bool {
    word.ends_with(|c: char| c.is_ascii_digit())
}

/// Breaks a text into lines of at most `columns`, all but the first indented by `hanging`.
fn wrap(text: &str, columns: usize, hanging: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut words: Vec<String> = Vec::new();
    for word in plain(text).split(' ').filter(|word| !word.is_empty()) {
        match words.last_mut() {
            // A number and its unit stay together.
            Some(number) if UNITS.contains(&bare(word)) && ends_in_digit(number) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    for word in &words {
        let mut word = &word[..];
        if !line.trim().is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(hanging)));
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        // A word longer than a line is broken; a path that is cut could not be copied.
        while width(&line) + width(word) > columns {
            let room = columns - width(&line);
            let end = word
                .char_indices()
                .nth(room)
                .map_or(word.len(), |(at, _)| at);
            // Behind a slash, if that leaves at least half a line.
            let slash = word[..end].rfind('/').map(|at| at + 1);
            let at = slash.filter(|at| *at > end / 2).unwrap_or(end);
            line.push_str(&word[..at]);
            word = &word[at..];
            lines.push(std::mem::replace(&mut line, " ".repeat(hanging)));
        }
        line.push_str(word);
    }
    if !line.trim().is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Cuts a text in the middle, where names differ least.
fn cut(text: &str, columns: usize) -> String {
    let text = plain(text);
    let count = width(&text);
    if count <= columns {
        return text;
    }
    let kept = columns.saturating_sub(1);
    let head = kept.div_ceil(2);
    let tail = kept - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

fn render_figures(figures: &[Figure], columns: usize) -> Vec<String> {
    let values: Vec<_> = figures
        .iter()
        .map(|f| plain(&f.value.to_string()))
        .collect();
    let labels = figures.iter().map(|f| width(&f.label)).max().unwrap_or(0);
    let widest = values.iter().map(|value| width(value)).max().unwrap_or(0);
    let margin = labels + GAP + widest + GAP;
    let lines = figures.iter().zip(values).flat_map(|(figure, value)| {
        let notes = wrap(&figure.note, columns.saturating_sub(margin).max(20), 0);
        let first = format!("{:labels$}  {value:>widest$}  ", plain(&figure.label));
        let heads = std::iter::once(first).chain(std::iter::repeat(" ".repeat(margin)));
        heads
            .zip(notes)
            .map(|(head, note)| head + &note)
            .collect::<Vec<_>>()
    });
    lines.collect()
}

fn render_table(table: &Table, columns: usize) -> Vec<String> {
    let cells: Vec<Vec<String>> = std::iter::once(table.columns.clone())
        .chain(
            table
                .rows
                .iter()
                .map(|row| row.iter().map(|value| plain(&value.to_string())).collect()),
        )
        .collect();
    let mut widths = vec![0; table.columns.len()];
    for row in &cells {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
    if let Some(name) = widths.first_mut() {
        *name = (*name).min(columns.saturating_sub(others).max(NARROWEST_NAME));
    }
    let mut lines: Vec<String> = cells
        .iter()
        .map(|row| {
            let mut line = String::new();
            for (index, (cell, widest)) in row.iter().zip(&widths).enumerate() {
                if index == 0 {
                    line += &format!("{:widest$}", cut(cell, *widest));
                } else {
                    line += &format!("  {cell:>widest$}");
                }
            }
            line
        })
        .collect();
    if !table.note.is_empty() {
        lines.extend(wrap(&table.note, columns, 0));
    }
    lines
}

fn render_bar(bar: &Bar, columns: usize) -> String {
    let label = match bar.label.is_empty() {
        true => String::new(),
        false => format!("{}  ", plain(&bar.label)),
    };
    let figures = format!("  {} of {}", Bytes(bar.part_bytes), Bytes(bar.whole_bytes));
    let room = columns.saturating_sub(width(&label) + width(&figures) + 2);
    let share = bar.part_bytes as f64 / bar.whole_bytes.max(1) as f64;
    // Something is never nothing, and not quite all is never all.
    let most = room - usize::from(bar.part_bytes < bar.whole_bytes && room > 0);
    let least = usize::from(bar.part_bytes > 0).min(most);
    let filled = ((share * room as f64).round() as usize).clamp(least, most);
    let (full, empty) = ("#".repeat(filled), ".".repeat(room - filled));
    format!("{label}[{full}{empty}]{figures}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_words_and_hang() {
        assert_eq!(wrap("aa bb cc", 5, 1), ["aa bb", " cc"]);
        assert_eq!(wrap("a bbbbbbbb", 5, 1), ["a", " bbbb", " bbbb"]);
        assert_eq!(wrap("/home/a/train.py", 9, 1), ["/home/a/", " train.py"]);
        assert_eq!(wrap("", 5, 1), [""]);
        assert_eq!(wrap("of 1.5 GiB, 20 %", 9, 0), ["of", "1.5 GiB,", "20 %"]);
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        assert_eq!(cut("jit_train_step", 14), "jit_train_step");
        assert_eq!(cut("jit_train_step", 9), "jit_…step");
    }

    #[test]
    fn a_bar_shows_something_and_never_all_too_early() {
        let bar = |part_bytes, whole_bytes| {
            let label = String::new();
            render_bar(
                &Bar {
                    label,
                    part_bytes,
                    whole_bytes,
                },
                30,
            )
        };
        assert_eq!(bar(0, 1000), "[.............]  0 B of 1000 B");
        assert!(bar(1, 1000).starts_with("[#."));
        assert!(bar(999, 1000).contains("#.]"));
        assert!(bar(1000, 1000).contains("#]"));
        assert!(!bar(1000, 1000).contains('.'));
        assert!(bar(7, 0).contains("#]"));
    }
}
