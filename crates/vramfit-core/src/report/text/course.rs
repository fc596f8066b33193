//! The curves of a run and the parts of its time, in lines.

use super::wrap::{cut, width};
use crate::report::escape::plain;
use crate::report::{Curves, Portion};

/// Columns of the bar of a part.
const BAR: usize = 30;

/// Tells where each curve begins and ends, and its least value.
pub(super) fn curves(curves: &Curves, columns: usize) -> Vec<String> {
    let labels = curves.lines.iter().map(|line| width(&line.label));
    let widest = labels.max().unwrap_or(0);
    let lines = curves.lines.iter().filter_map(|line| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        let least = line.points.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let text = format!(
            "{:widest$}  {:.4} at {unit} {}, {:.4} at {unit} {}; least {:.4} at {unit} {}",
            plain(&line.label),
            first.1,
            first.0,
            last.1,
            last.0,
            least.1,
            least.0,
            unit = curves.unit,
        );
        Some(cut(&text, columns))
    });
    lines.collect()
}

/// Draws each part as a bar.
pub(super) fn split(portions: &[Portion], columns: usize) -> Vec<String> {
    let widest = |of: fn(&Portion) -> &str| portions.iter().map(|p| width(of(p))).max();
    let label = widest(|portion| &portion.label).unwrap_or(0);
    let amount = widest(|portion| &portion.amount).unwrap_or(0);
    let lines = portions.iter().map(|portion| {
        let full = (portion.share * BAR as f64).round() as usize;
        let text = format!(
            "{:label$}  {:>amount$}  {:5.1} %  {}",
            plain(&portion.label),
            portion.amount,
            portion.share * 100.0,
            "#".repeat(full.min(BAR)),
        );
        cut(&text, columns)
    });
    lines.collect()
}
