//! The curves of a training run and the shares of its time, in lines.

use vramfit_base::text::plain;
use vramfit_base::text::{cut, width};

use crate::report::{Curves, Share};

/// Columns of the bar of a share.
const BAR_WIDTH: usize = 30;

/// Shows where each curve begins and ends, and its minimum.
pub(super) fn curves(curves: &Curves, columns: usize) -> Vec<String> {
    let labels = curves.curves.iter().map(|curve| width(&curve.label));
    let widest = labels.max().unwrap_or(0);
    let lines = curves.curves.iter().filter_map(|curve| {
        let (first, last) = (curve.points.first()?, curve.points.last()?);
        let min = curve.points.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let text = format!(
            "{:widest$}  {:.4} at {unit} {}, {:.4} at {unit} {}; minimum {:.4} at {unit} {}",
            plain(&curve.label),
            first.1,
            first.0,
            last.1,
            last.0,
            min.1,
            min.0,
            unit = curves.unit,
        );
        Some(cut(&text, columns))
    });
    lines.collect()
}

/// Draws each share as a bar.
pub(super) fn breakdown(shares: &[Share], columns: usize) -> Vec<String> {
    let widest = |of: fn(&Share) -> &str| shares.iter().map(|it| width(of(it))).max();
    let label = widest(|share| &share.label).unwrap_or(0);
    let amount = widest(|share| &share.amount).unwrap_or(0);
    let lines = shares.iter().map(|share| {
        let full = (share.fraction * BAR_WIDTH as f64).round() as usize;
        let text = format!(
            "{:label$}  {:>amount$}  {:5.1} %  {}",
            plain(&share.label),
            share.amount,
            share.fraction * 100.0,
            "#".repeat(full.min(BAR_WIDTH)),
        );
        cut(&text, columns)
    });
    lines.collect()
}
