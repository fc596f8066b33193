//! A chart as a standalone SVG for a paper or an issue: in the light theme, without scripts.

mod timeline;
mod tradeoff;

use super::escape::markup;
use crate::bytes::Bytes;
use crate::report::{Content, Report};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 846.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 296.0;

/// Renders the first timeline of a report, or its alternatives.
pub(in crate::report) fn render(report: &Report) -> Option<String> {
    let mut contents = report.sections.iter().map(|section| &section.content);
    let chart = contents.find_map(|content| match content {
        Content::Timeline(timeline) => Some(timeline::draw(timeline)),
        Content::Tradeoff(tradeoff) => Some(tradeoff::draw(tradeoff)),
        _ => None,
    })?;
    let headline = markup(&truncate(&report.headline, 104));
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#5a6571\">\n\
         <title>{headline}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"14\" y=\"24\" font-size=\"14\" font-weight=\"600\" fill=\"#1a1f25\">{headline}</text>\n\
         {chart}</svg>\n"
    ))
}

fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Draws grid lines at round amounts, with labels.
fn byte_axis(max: u64, y: impl Fn(u64) -> f64) -> String {
    let mut step = 1_u64;
    while max / step > 5 {
        step *= 2;
    }
    let mut svg = String::new();
    for value in (0..=max / step).map(|count| count * step) {
        let y = y(value);
        svg += &format!(
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#d9dfe5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 8.0,
            y + 4.0,
            Bytes(value)
        );
    }
    svg
}

/// Draws the limit.
fn limit_line(limit: u64, y: f64) -> String {
    format!(
        "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#1a1f25\" stroke-dasharray=\"5 4\"/>\
         <text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#1a1f25\">limit {}</text>\n",
        y - 6.0,
        Bytes(limit)
    )
}
