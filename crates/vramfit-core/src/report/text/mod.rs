//! A report for a terminal: 80 columns, no colours, nothing that a name could do to the terminal.

mod chart;
mod course;
pub(super) mod findings;
mod map;
mod tree;
pub(crate) mod wrap;

use self::wrap::{cut, width, wrap};
use super::escape::plain;
use super::owners::line_of;
use super::{Bar, Body, Figure, Report, Table, Value};
use crate::bytes::Bytes;

/// Columns that every terminal has.
const WIDTH: usize = 80;
/// Columns between two columns of a table.
const GAP: usize = 2;
/// Narrowest column of names in a table; others are cut to it before the table grows wider.
const MIN_NAME_WIDTH: usize = 8;
/// Rows of a table that are told; a page or a spreadsheet holds them all.
const MAX_ROWS: usize = 20;
/// Columns that the name of a bar may take.
const BAR_NAME: usize = 20;

/// Renders a report, with or without its details; the first line is the answer.
pub(super) fn render(report: &Report, details: bool) -> String {
    let mut lines = wrap(&report.answer, WIDTH, 2);
    let told = report.sections.iter();
    for section in told.filter(|section| details || !section.detail) {
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
            Body::Tree(tree) => tree::render(tree, WIDTH - indent),
            Body::Timeline(timeline) => chart::timeline(timeline, WIDTH - indent),
            Body::Bands(bands) => chart::bands(bands, WIDTH - indent),
            Body::Map(map) => map::render(map, WIDTH - indent),
            Body::Curves(curves) => course::curves(curves, WIDTH - indent),
            Body::Split(portions) => course::split(portions, WIDTH - indent),
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
    let shown = table.rows.len().min(MAX_ROWS);
    let words: Vec<bool> = (0..table.columns.len())
        .map(|at| {
            // A word among figures stands where they stand.
            let figure = |row: &Vec<Value>| !matches!(row.get(at), Some(Value::Text(_)));
            at == 0 || !table.rows.iter().any(figure)
        })
        .collect();
    let rows = table.rows[..shown].iter();
    let rows = rows.map(|row| row.iter().map(|value| plain(&value.to_string())).collect());
    let mut cells: Vec<Vec<String>> =
        std::iter::once(table.columns.iter().map(|name| plain(name)).collect())
            .chain(rows)
            .collect();
    if total_width(&widest_cells(&cells, words.len())) > columns {
        shorten_lines(&mut cells);
    }
    let widths = column_widths(&cells, &words, columns);
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(&words);
        let cells = cells.map(|((cell, widest), words)| match words {
            true => format!("{:widest$}", cut(cell, *widest)),
            false => format!("{cell:>widest$}"),
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP))
    };
    let mut lines: Vec<String> = cells.iter().map(line).collect();
    match table.rows.len() - shown {
        0 => {}
        more => lines.push(format!("{more} more rows")),
    }
    if !table.note.is_empty() {
        lines.extend(wrap(&table.note, columns, 0));
    }
    lines
}

/// Leaves of the places in a program what says most.
fn shorten_lines(cells: &mut [Vec<String>]) {
    let Some((names, rows)) = cells.split_first_mut() else {
        return;
    };
    for (at, _) in names.iter().enumerate().filter(|(_, name)| *name == "line") {
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            *cell = line_of(cell).to_owned();
        }
    }
}

/// Returns the width of the widest cell of each column.
fn widest_cells(cells: &[Vec<String>], columns: usize) -> Vec<usize> {
    let mut widths = vec![0; columns];
    for row in cells {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = width(cell).max(*widest);
        }
    }
    widths
}

fn total_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Returns the widths of columns. Where the line has not enough room, the widest column of words
/// gives some of its own, the first, which says what a row is, only beyond twice as much as others;
/// figures are never cut.
fn column_widths(cells: &[Vec<String>], words: &[bool], columns: usize) -> Vec<usize> {
    let mut widths = widest_cells(cells, words.len());
    while total_width(&widths) > columns {
        let wide = (0..widths.len()).filter(|at| words[*at] && widths[*at] > MIN_NAME_WIDTH);
        let Some(widest) = wide.max_by_key(|at| widths[*at] / if *at == 0 { 2 } else { 1 }) else {
            break;
        };
        widths[widest] -= 1;
    }
    widths
}

fn render_bar(bar: &Bar, columns: usize) -> String {
    let label = match bar.label.is_empty() {
        true => String::new(),
        false => format!("{}  ", cut(&bar.label, BAR_NAME)),
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
