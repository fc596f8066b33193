//! Bytes over time as a small chart of characters.

use vramfit_base::text::{cut, width, wrap};

use crate::bytes::Bytes;
use crate::report::{BufferLifetimes, Timeline};

/// Rows of a chart.
const ROWS: usize = 8;
/// Columns of the labels of the vertical axis.
const AXIS_WIDTH: usize = 11;

/// Renders the first series of a timeline, below the limit, with its peak.
pub(super) fn timeline(timeline: &Timeline, columns: usize) -> Vec<String> {
    let Some(series) = timeline.series.first().filter(|it| !it.bytes.is_empty()) else {
        return Vec::new();
    };
    let failed = timeline.failed_request.map(|request| request.position);
    let mut markers = timeline.markers.iter();
    let peak = markers.find(|marker| match failed {
        Some(position) => marker.position == position && marker.label.starts_with("request"),
        None => marker.label.starts_with("peak"),
    });
    let first = timeline.positions.first().copied().unwrap_or(0);
    let last = timeline.positions.last().copied().unwrap_or(0);
    let positions = timeline.positions.iter().copied();
    let chart = Chart {
        points: positions.zip(series.bytes.iter().copied()).collect(),
        limit: timeline.limit_bytes,
        peak: peak.map(|marker| (marker.position, marker.label.clone())),
        caption: format!("{}, {} {first} to {last}", series.label, timeline.unit),
    };
    chart.render(columns)
}

/// Renders the live bytes of a program.
pub(super) fn live_bytes(lifetimes: &BufferLifetimes, columns: usize) -> Vec<String> {
    if lifetimes.live_bytes.is_empty() {
        return Vec::new();
    }
    let peak = lifetimes.peak_index as usize;
    let name = lifetimes.instructions.get(peak).map_or("", String::as_str);
    let live = lifetimes.live_bytes.get(peak).copied().unwrap_or(0);
    let chart = Chart {
        points: (0..).zip(lifetimes.live_bytes.iter().copied()).collect(),
        limit: None,
        peak: Some((peak as u64, format!("peak {} at {name}", Bytes(live)))),
        caption: format!(
            "live bytes of {} buffers over {} instructions",
            lifetimes.buffers.len(),
            lifetimes.live_bytes.len()
        ),
    };
    chart.render(columns)
}

struct Chart {
    /// Positions, rising, and bytes.
    points: Vec<(u64, u64)>,
    limit: Option<u64>,
    peak: Option<(u64, String)>,
    caption: String,
}

impl Chart {
    fn render(&self, columns: usize) -> Vec<String> {
        let plot_width = columns.saturating_sub(AXIS_WIDTH + 2).max(8);
        let heights = self.heights(plot_width);
        let highest = heights.iter().copied().max().unwrap_or(0);
        let top = self.limit.unwrap_or(0).max(highest).max(1);
        let mut lines = Vec::new();
        if let Some(limit) = self.limit {
            let label = " limit";
            let dashes = "-".repeat(plot_width - label.len());
            lines.push(format!("{:>AXIS_WIDTH$} |{dashes}{label}", Bytes(limit).to_string()));
        }
        let level = |bytes: u64| level(bytes, top);
        let mut named = false;
        for row in (1..=ROWS).rev() {
            let cells = heights.iter().map(|bytes| if level(*bytes) >= row { '#' } else { ' ' });
            let cells: String = cells.collect();
            let amount = match level(highest) {
                reached if reached == row && !named => {
                    named = true;
                    Bytes(highest).to_string()
                }
                _ => String::new(),
            };
            lines.push(format!("{amount:>AXIS_WIDTH$} |{cells}"));
        }
        lines.push(format!("{:>AXIS_WIDTH$} +{}", "0 B", "-".repeat(plot_width)));
        lines.extend(self.peak_line(plot_width));
        let indent = AXIS_WIDTH + 2;
        let caption = wrap(&self.caption, plot_width, 0);
        lines.extend(caption.iter().map(|line| format!("{:indent$}{line}", "")));
        lines
    }

    /// Returns the maximum of each column; a value holds until the next position.
    fn heights(&self, plot_width: usize) -> Vec<u64> {
        let mut heights = vec![0; plot_width];
        for (index, (at, bytes)) in self.points.iter().enumerate() {
            let next = self.points.get(index + 1).map_or(*at, |(next, _)| *next);
            let from = self.column(*at, plot_width);
            let to = self.column(next, plot_width).max(from + 1);
            for height in &mut heights[from..to] {
                *height = (*height).max(*bytes);
            }
        }
        heights
    }

    fn column(&self, at: u64, plot_width: usize) -> usize {
        let first = self.points.first().map_or(0, |(at, _)| *at);
        let last = self.points.last().map_or(0, |(at, _)| *at);
        let part = u128::from(at.saturating_sub(first)) * plot_width as u128;
        let column = part / u128::from(last.saturating_sub(first).max(1));
        (column as usize).min(plot_width - 1)
    }

    /// Names the peak under its column: right of the arrow, or left of it where there is more space.
    fn peak_line(&self, plot_width: usize) -> Option<String> {
        let (at, label) = self.peak.as_ref()?;
        let column = self.column(*at, plot_width);
        let indent = AXIS_WIDTH + 2;
        if column < plot_width / 2 {
            let label = cut(label, plot_width - column - 2);
            Some(format!("{:1$}^ {label}", "", indent + column))
        } else {
            let label = cut(label, column - 1);
            let pad = indent + column - 1 - width(&label);
            Some(format!("{:pad$}{label} ^", ""))
        }
    }
}

/// Returns how many rows an amount fills: something is never nothing, not quite all is never all.
fn level(bytes: u64, top: u64) -> usize {
    let rounded = (bytes as f64 / top as f64 * ROWS as f64).round() as usize;
    let max = if bytes < top { ROWS - 1 } else { ROWS };
    rounded.clamp(usize::from(bytes > 0), max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_shows_something_and_never_all_too_early() {
        assert_eq!([0, 1, 500, 999, 1000].map(|bytes| level(bytes, 1000)), [0, 1, 4, 7, 8]);
    }

    #[test]
    fn a_short_peak_is_not_lost_between_columns() {
        let mut points: Vec<(u64, u64)> = (0..10_000).map(|at| (at, 1)).collect();
        points[5_432].1 = 100;
        let chart = Chart { points, limit: None, peak: None, caption: String::new() };
        assert_eq!(chart.heights(60).iter().max(), Some(&100));
    }

    #[test]
    fn one_point_is_a_chart() {
        let chart = Chart {
            points: vec![(7, 5)],
            limit: Some(10),
            peak: Some((7, "peak".into())),
            caption: String::new(),
        };
        assert!(chart.render(40).iter().all(|line| width(line) <= 40));
    }
}
