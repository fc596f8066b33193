//! Bytes over a course as a small chart of characters.

use super::wrap::{cut, width, wrap};
use crate::bytes::Bytes;
use crate::report::{Bands, Timeline};

/// Rows of a chart.
const ROWS: usize = 8;
/// Columns of an amount left of a chart.
const AMOUNT: usize = 11;

/// Renders the first line of a timeline, below the limit, with its peak.
pub(super) fn timeline(timeline: &Timeline, columns: usize) -> Vec<String> {
    let Some(line) = timeline.lines.first().filter(|line| !line.bytes.is_empty()) else {
        return Vec::new();
    };
    let peak = timeline
        .marks
        .iter()
        .find(|mark| mark.label.starts_with("peak"));
    let (first, last) = (timeline.at.first().copied(), timeline.at.last().copied());
    let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
    let chart = Chart {
        points: timeline
            .at
            .iter()
            .copied()
            .zip(line.bytes.iter().copied())
            .collect(),
        limit: timeline.limit_bytes,
        peak: peak.map(|mark| (mark.at, mark.label.clone())),
        below: format!("{}, {} {first} to {last}", line.label, timeline.unit),
    };
    chart.render(columns)
}

/// Renders the live bytes of a program, and how many buffers they are made of.
pub(super) fn bands(bands: &Bands, columns: usize) -> Vec<String> {
    if bands.live_bytes.is_empty() {
        return Vec::new();
    }
    let peak_at = bands.peak_at as usize;
    let name = bands.moments.get(peak_at).map_or("", String::as_str);
    let live = bands.live_bytes.get(peak_at).copied().unwrap_or(0);
    let chart = Chart {
        points: (0..).zip(bands.live_bytes.iter().copied()).collect(),
        limit: None,
        peak: Some((peak_at as u64, format!("peak {} at {name}", Bytes(live)))),
        below: format!(
            "live bytes of {} buffers over {} instructions",
            bands.bands.len(),
            bands.live_bytes.len()
        ),
    };
    chart.render(columns)
}

struct Chart {
    /// Positions, rising, and bytes.
    points: Vec<(u64, u64)>,
    limit: Option<u64>,
    peak: Option<(u64, String)>,
    /// What is said below.
    below: String,
}

impl Chart {
    fn render(&self, columns: usize) -> Vec<String> {
        let room = columns.saturating_sub(AMOUNT + 2).max(8);
        let heights = self.heights(room);
        let most = heights.iter().copied().max().unwrap_or(0);
        let top = self.limit.unwrap_or(0).max(most).max(1);
        let mut lines = Vec::new();
        if let Some(limit) = self.limit {
            let label = " limit";
            let dashes = "-".repeat(room - label.len());
            lines.push(format!(
                "{:>AMOUNT$} |{dashes}{label}",
                Bytes(limit).to_string()
            ));
        }
        let level = |bytes: u64| level(bytes, top);
        let mut named = false;
        for row in (1..=ROWS).rev() {
            let cells = heights
                .iter()
                .map(|bytes| if level(*bytes) >= row { '#' } else { ' ' });
            let cells: String = cells.collect();
            let amount = match level(most) {
                reached if reached == row && !named => {
                    named = true;
                    Bytes(most).to_string()
                }
                _ => String::new(),
            };
            lines.push(format!("{amount:>AMOUNT$} |{cells}"));
        }
        lines.push(format!("{:>AMOUNT$} +{}", "0 B", "-".repeat(room)));
        lines.extend(self.peak_line(room));
        let indent = AMOUNT + 2;
        let below = wrap(&self.below, room, 0);
        lines.extend(below.iter().map(|line| format!("{:indent$}{line}", "")));
        lines
    }

    /// Returns the most of each column; a value holds until the next position.
    fn heights(&self, room: usize) -> Vec<u64> {
        let mut heights = vec![0; room];
        for (index, (at, bytes)) in self.points.iter().enumerate() {
            let next = self.points.get(index + 1).map_or(*at, |(next, _)| *next);
            let from = self.column(*at, room);
            let to = self.column(next, room).max(from + 1);
            for height in &mut heights[from..to] {
                *height = (*height).max(*bytes);
            }
        }
        heights
    }

    fn column(&self, at: u64, room: usize) -> usize {
        let first = self.points.first().map_or(0, |(at, _)| *at);
        let last = self.points.last().map_or(0, |(at, _)| *at);
        let part = u128::from(at.saturating_sub(first)) * room as u128;
        let column = part / u128::from(last.saturating_sub(first).max(1));
        (column as usize).min(room - 1)
    }

    /// Names the peak under its column: right of the arrow, or left of it where there is more room.
    fn peak_line(&self, room: usize) -> Option<String> {
        let (at, label) = self.peak.as_ref()?;
        let column = self.column(*at, room);
        let indent = AMOUNT + 2;
        if column < room / 2 {
            let label = cut(label, room - column - 2);
            Some(format!("{:1$}^ {label}", "", indent + column))
        } else {
            let label = cut(label, column - 1);
            let pad = indent + column - 1 - width(&label);
            Some(format!("{:pad$}{label} ^", ""))
        }
    }
}

/// Returns the rows that an amount fills: something is never nothing, not quite all is never all.
fn level(bytes: u64, top: u64) -> usize {
    let rounded = (bytes as f64 / top as f64 * ROWS as f64).round() as usize;
    let most = if bytes < top { ROWS - 1 } else { ROWS };
    rounded.clamp(usize::from(bytes > 0), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_shows_something_and_never_all_too_early() {
        assert_eq!(
            [0, 1, 500, 999, 1000].map(|bytes| level(bytes, 1000)),
            [0, 1, 4, 7, 8]
        );
    }

    #[test]
    fn a_short_peak_is_not_lost_between_columns() {
        let mut points: Vec<(u64, u64)> = (0..10_000).map(|at| (at, 1)).collect();
        points[5_432].1 = 100;
        let chart = Chart {
            points,
            limit: None,
            peak: None,
            below: String::new(),
        };
        assert_eq!(chart.heights(60).iter().max(), Some(&100));
    }

    #[test]
    fn one_point_is_a_chart() {
        let chart = Chart {
            points: vec![(7, 5)],
            limit: Some(10),
            peak: Some((7, "peak".into())),
            below: String::new(),
        };
        assert!(chart.render(40).iter().all(|line| width(line) <= 40));
    }
}
