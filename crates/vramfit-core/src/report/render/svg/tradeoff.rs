//! Alternatives by bytes and cost; what no other one beats in both is joined by a line.

use super::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, byte_axis, limit_line};
use crate::bytes::Bytes;
use crate::report::render::escape::markup;
use crate::report::{Alternative, AlternativeKind, Tradeoff};

/// Part of the width on both sides of the points.
const MARGIN: f64 = 0.06;

/// Draws them.
pub(super) fn draw(tradeoff: &Tradeoff) -> String {
    let alternatives = tradeoff.alternatives.iter();
    let mut points: Vec<&Alternative> = alternatives.filter(|it| it.cost.is_finite()).collect();
    points.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.cost.total_cmp(&b.cost)));
    let costs = || points.iter().map(|it| it.cost);
    let (cheap, dear) =
        (costs().fold(f64::INFINITY, f64::min), costs().fold(f64::NEG_INFINITY, f64::max));
    let max = points.iter().map(|it| it.bytes).chain(tradeoff.limit_bytes);
    let max = max.max().unwrap_or(0).max(1);
    let x = |cost: f64| {
        let share = (cost - cheap) / (dear - cheap).max(f64::MIN_POSITIVE);
        let share = MARGIN + share.clamp(0.0, 1.0) * (1.0 - 2.0 * MARGIN);
        LEFT + share * (RIGHT - LEFT)
    };
    let y = |bytes: u64| BOTTOM - bytes as f64 / max as f64 * (BOTTOM - TOP);
    let mut svg = byte_axis(max, y);
    svg += &tradeoff.limit_bytes.map_or_else(String::new, |limit| limit_line(limit, y(limit)));
    let mut path = String::new();
    let mut lowest = f64::INFINITY;
    for point in &points {
        if point.cost < lowest {
            lowest = point.cost;
            let command = if path.is_empty() { 'M' } else { 'L' };
            path += &format!("{command}{:.1} {:.1}", x(point.cost), y(point.bytes));
        }
    }
    svg += &format!("<path d=\"{path}\" fill=\"none\" stroke=\"#2f6db3\" stroke-width=\"1.6\"/>\n");
    // What matters most is drawn last.
    let mut drawn = points.clone();
    drawn.sort_by_key(|point| point.kind as u8);
    for point in drawn {
        let (color, radius) = style(point.kind);
        svg += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{color}\">\
             <title>{}: {}</title></circle>\n",
            x(point.cost),
            y(point.bytes),
            markup(&point.label),
            Bytes(point.bytes),
        );
    }
    if cheap.is_finite() {
        let below = BOTTOM + 18.0;
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{below}\" text-anchor=\"middle\">{cheap:.1}</text>\
             <text x=\"{:.1}\" y=\"{below}\" text-anchor=\"middle\">{dear:.1}</text>\
             <text x=\"{:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>\n",
            x(cheap),
            x(dear),
            (LEFT + RIGHT) / 2.0,
            markup(tradeoff.cost),
        );
    }
    svg + &legend(&points)
}

fn style(kind: AlternativeKind) -> (&'static str, f64) {
    match kind {
        AlternativeKind::Recommended => ("#16907f", 7.0),
        AlternativeKind::ParetoOptimal => ("#2f6db3", 4.5),
        AlternativeKind::Unchanged => ("#dd7a1e", 5.5),
        AlternativeKind::Dominated => ("#9aa3ad", 3.5),
    }
}

fn legend(points: &[&Alternative]) -> String {
    let mut svg = String::new();
    let (mut x, y) = (LEFT, HEIGHT - 20.0);
    for kind in [
        AlternativeKind::Recommended,
        AlternativeKind::ParetoOptimal,
        AlternativeKind::Unchanged,
        AlternativeKind::Dominated,
    ] {
        if points.iter().any(|point| point.kind == kind) {
            let label = kind.label();
            svg += &format!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{y}\">{label}</text>\n",
                x + 5.0,
                y - 4.0,
                style(kind).0,
                x + 16.0,
            );
            x += 16.0 + 7.0 * label.len() as f64 + 24.0;
        }
    }
    svg
}
