//! Tables as columns of text.

use vramfit_base::text::plain;
use vramfit_base::text::{cut, width, wrap};

use super::GAP;
use crate::report::phrases::short_line;
use crate::report::{Table, Value};

/// Narrowest column of names in a table; others are cut to it before the table grows wider.
const MIN_NAME_WIDTH: usize = 8;
/// Rows of a table that are shown; the page has all.
const MAX_ROWS: usize = 20;

pub(super) fn render(table: &Table, columns: usize) -> Vec<String> {
    let shown = table.rows.len().min(MAX_ROWS);
    let is_text: Vec<bool> = (0..table.columns.len())
        .map(|at| {
            // A word among numbers is aligned as they are.
            let is_number = |row: &Vec<Value>| !matches!(row.get(at), Some(Value::Text(_)));
            at == 0 || !table.rows.iter().any(is_number)
        })
        .collect();
    let rows = table.rows[..shown].iter();
    let rows = rows.map(|row| row.iter().map(|value| plain(&value.to_string())).collect());
    let headings = table.columns.iter().map(|name| plain(name)).collect();
    let mut cells: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    if total_width(&widest_cells(&cells, is_text.len())) > columns {
        shorten_lines(&mut cells);
    }
    let widths = column_widths(&cells, &is_text, columns);
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).zip(&is_text);
        let cells = cells.map(|((cell, width), is_text)| {
            if *is_text {
                format!("{:width$}", cut(cell, *width))
            } else {
                format!("{cell:>width$}")
            }
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

/// Shortens lines of the program to file and number.
fn shorten_lines(cells: &mut [Vec<String>]) {
    let Some((names, rows)) = cells.split_first_mut() else {
        return;
    };
    for (at, _) in names.iter().enumerate().filter(|(_, name)| *name == "line") {
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            *cell = short_line(cell).to_owned();
        }
    }
}

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

/// Returns the widths of columns. Where the line is too narrow, the widest text column is cut, but the
/// first, which says what a row is, only beyond twice as much as others; numbers are never cut.
fn column_widths(cells: &[Vec<String>], is_text: &[bool], columns: usize) -> Vec<usize> {
    let mut widths = widest_cells(cells, is_text.len());
    while total_width(&widths) > columns {
        let wide = (0..widths.len()).filter(|at| is_text[*at] && widths[*at] > MIN_NAME_WIDTH);
        let Some(widest) = wide.max_by_key(|at| widths[*at] / if *at == 0 { 2 } else { 1 }) else {
            break;
        };
        widths[widest] -= 1;
    }
    widths
}
