//! The table of buffers for a spreadsheet: exact bytes, and no cell that a spreadsheet would run.

use super::escape::plain;
use super::{Bands, Body, Report, Table, Value};

/// Renders the largest table of a report; buffers of a program are a table, too.
pub(super) fn render(report: &Report) -> String {
    let tables = report
        .sections
        .iter()
        .filter_map(|section| match &section.body {
            Body::Bands(bands) => Some(((bands.bands.len(), section.detail), of_bands(bands))),
            Body::Table(table) => Some(((table.rows.len(), section.detail), of_table(table))),
            _ => None,
        });
    // Of equals the one with details, and of those the first.
    let largest = tables.reduce(|best, other| if other.0 > best.0 { other } else { best });
    largest.map_or_else(String::new, |(_, text)| text)
}

fn of_table(table: &Table) -> String {
    let mut text = line(table.columns.iter().map(|name| cell(name)));
    for row in &table.rows {
        text.push_str(&line(row.iter().map(|value| match value {
            Value::Bytes(number) | Value::Count(number) => number.to_string(),
            Value::Change(change) => change.to_string(),
            Value::Share(share) => share.to_string(),
            Value::Text(words) => cell(words),
            Value::Missing(why) => cell(why),
        })));
    }
    text
}

fn of_bands(bands: &Bands) -> String {
    let names = [
        "buffer", "kind", "bytes", "offset", "from", "to", "first", "last", "note",
    ];
    let mut text = line(names.iter().map(|name| (*name).to_owned()));
    let moment = |at: u32| bands.moments.get(at as usize).map_or("", String::as_str);
    let mut largest_first: Vec<_> = bands.bands.iter().collect();
    largest_first.sort_by_key(|band| std::cmp::Reverse(band.bytes));
    for band in largest_first {
        text.push_str(&line([
            cell(&band.label),
            cell(band.kind),
            band.bytes.to_string(),
            band.offset.to_string(),
            band.start.to_string(),
            band.end.to_string(),
            cell(moment(band.start)),
            cell(moment(band.end)),
            cell(&band.note),
        ]));
    }
    text
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    cells.join(",") + "\r\n"
}

/// Writes words as a cell: a spreadsheet takes what begins like a formula for one, so an apostrophe
/// goes before it, and quotes keep commas inside.
fn cell(words: &str) -> String {
    let mut safe = plain(words);
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
        for (words, written) in [
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
            assert_eq!(cell(words), written);
        }
    }
}
