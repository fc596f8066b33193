//! Alternatives by bytes and cost as a small chart of characters.

use crate::bytes::Bytes;
use crate::report::{AlternativeKind, Tradeoff};

/// Rows of the chart.
const ROWS: usize = 12;
/// Columns of the labels of the vertical axis.
const AXIS_WIDTH: usize = 11;

/// Renders bytes upward and costs to the right, both from the lowest to the highest.
pub(super) fn render(tradeoff: &Tradeoff, columns: usize) -> Vec<String> {
    let bytes = tradeoff.alternatives.iter().map(|it| it.bytes);
    let bytes: Vec<u64> = bytes.chain(tradeoff.limit_bytes).collect();
    let costs = tradeoff.alternatives.iter().map(|it| it.cost);
    let costs: Vec<f64> = costs.filter(|cost| cost.is_finite()).collect();
    let (Some(&low), Some(&high)) = (bytes.iter().min(), bytes.iter().max()) else {
        return Vec::new();
    };
    let cheap = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let dear = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if costs.is_empty() {
        return Vec::new();
    }
    let plot_width = columns.saturating_sub(AXIS_WIDTH + 2).max(8);
    let row = |bytes: u64| {
        let share = (high - bytes) as f64 / (high - low).max(1) as f64;
        (share * (ROWS - 1) as f64).round() as usize
    };
    let column = |cost: f64| {
        let share = (cost - cheap) / (dear - cheap).max(f64::MIN_POSITIVE);
        (share.clamp(0.0, 1.0) * (plot_width - 1) as f64).round() as usize
    };
    let mut cells = vec![vec![' '; plot_width]; ROWS];
    let mut labels = vec![String::new(); ROWS];
    labels[0] = Bytes(high).to_string();
    labels[ROWS - 1] = Bytes(low).to_string();
    if let Some(limit) = tradeoff.limit_bytes {
        cells[row(limit)].fill('-');
        labels[row(limit)] = Bytes(limit).to_string();
    }
    // What matters most is drawn last.
    let mut alternatives: Vec<_> = tradeoff.alternatives.iter().collect();
    alternatives.sort_by_key(|it| it.kind as u8);
    for it in alternatives.iter().filter(|it| it.cost.is_finite()) {
        cells[row(it.bytes)][column(it.cost)] = it.kind.symbol();
    }
    let mut lines: Vec<String> = labels
        .iter()
        .zip(&cells)
        .map(|(label, cells)| format!("{label:>AXIS_WIDTH$} |{}", cells.iter().collect::<String>()))
        .collect();
    lines.push(format!("{:>AXIS_WIDTH$} +{}", "", "-".repeat(plot_width)));
    let (first, last) = (format!("{cheap:.1}"), format!("{dear:.1}"));
    let between = plot_width.saturating_sub(first.len() + last.len());
    lines.push(format!("{:>AXIS_WIDTH$}  {first}{:^between$}{last}", "", tradeoff.cost));
    let mut legend: Vec<AlternativeKind> = alternatives.iter().map(|it| it.kind).collect();
    legend.dedup();
    let mut names: Vec<String> =
        legend.iter().rev().map(|kind| format!("{} {}", kind.symbol(), kind.label())).collect();
    names.extend(tradeoff.limit_bytes.map(|_| "--- limit".to_owned()));
    lines.push(format!("{:>AXIS_WIDTH$}  {}", "", names.join("  ")));
    lines
}
