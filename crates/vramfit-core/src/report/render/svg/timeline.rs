//! Memory over the run.

use super::{BOTTOM, HEIGHT, LEFT, RIGHT, TOP, byte_axis, limit_line, truncate};
use crate::bytes::Bytes;
use crate::report::render::escape::markup;
use crate::report::{Series, Timeline};

/// Colors and dashes by series; no two differ by color alone.
const STROKES: [(&str, &str); 4] =
    [("#2f6db3", ""), ("#dd7a1e", "6 3"), ("#16907f", "2 3"), ("#a8478f", "9 3 2 3")];

/// Draws it.
pub(super) fn draw(timeline: &Timeline) -> String {
    let scale = Scale::new(timeline);
    let mut svg = axes(timeline, &scale);
    for (index, series) in timeline.series.iter().enumerate() {
        svg += &step_line(timeline, series, index, &scale);
    }
    svg += &failed_request(timeline, &scale);
    let limit = timeline.limit_bytes;
    svg += &limit.map_or_else(String::new, |limit| limit_line(limit, scale.y(limit)));
    svg += &markers(timeline, &scale);
    svg + &legend(timeline)
}

/// From positions and bytes to coordinates.
struct Scale {
    first: u64,
    last: u64,
    max: u64,
}

impl Scale {
    fn new(timeline: &Timeline) -> Scale {
        let bytes = timeline.series.iter().flat_map(|series| &series.bytes);
        let request = timeline.failed_request;
        let request = request.map(|it| it.in_use_bytes.saturating_add(it.requested_bytes));
        let max = bytes.chain(&timeline.limit_bytes).chain(&request).max();
        Scale {
            first: timeline.positions.first().copied().unwrap_or(0),
            last: timeline.positions.last().copied().unwrap_or(0),
            max: max.copied().unwrap_or(0).max(1),
        }
    }

    fn x(&self, at: u64) -> f64 {
        let span = self.last.saturating_sub(self.first).max(1) as f64;
        LEFT + at.saturating_sub(self.first) as f64 / span * (RIGHT - LEFT)
    }

    fn y(&self, bytes: u64) -> f64 {
        BOTTOM - bytes as f64 / self.max as f64 * (BOTTOM - TOP)
    }
}

fn axes(timeline: &Timeline, scale: &Scale) -> String {
    let mut svg = byte_axis(scale.max, |bytes| scale.y(bytes));
    let below = BOTTOM + 18.0;
    svg += &format!(
        "<text x=\"{LEFT}\" y=\"{below}\">{}</text>\
         <text x=\"{RIGHT}\" y=\"{below}\" text-anchor=\"end\">{} {}</text>\n",
        scale.first,
        scale.last,
        markup(timeline.unit)
    );
    svg
}

/// Draws a series as steps. Where many values fall on one pixel, it goes from their minimum to their
/// maximum, so that no peak is lost.
fn step_line(timeline: &Timeline, series: &Series, index: usize, scale: &Scale) -> String {
    let mut path = String::new();
    let mut values = timeline.positions.iter().zip(&series.bytes).peekable();
    let (mut pixel, mut low, mut high) = (f64::NAN, 0, 0);
    while let Some((at, bytes)) = values.next() {
        let x = (scale.x(*at) * 2.0).round() / 2.0;
        if x == pixel {
            (low, high) = (low.min(*bytes), high.max(*bytes));
        } else {
            path += &if path.is_empty() {
                format!("M{x} {:.1}", scale.y(*bytes))
            } else {
                format!("H{x}")
            };
            (pixel, low, high) = (x, *bytes, *bytes);
        }
        let is_last = values.peek().is_none_or(|(next, _)| {
            let next = (scale.x(**next) * 2.0).round() / 2.0;
            next != x
        });
        if is_last {
            for bytes in [high, low, *bytes] {
                path += &format!("V{:.1}", scale.y(bytes));
            }
        }
    }
    let (color, dashes) = STROKES[index % STROKES.len()];
    format!(
        "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\" \
         stroke-dasharray=\"{dashes}\" stroke-linejoin=\"round\"/>\n"
    )
}

/// Draws what the failed request would have added, as a step to the end of the run.
fn failed_request(timeline: &Timeline, scale: &Scale) -> String {
    let Some(request) = timeline.failed_request else {
        return String::new();
    };
    // At the end of the run it is still wide enough to be seen.
    let x = scale.x(request.position).min(RIGHT - 14.0);
    let total = request.in_use_bytes.saturating_add(request.requested_bytes);
    let (top, bottom) = (scale.y(total), scale.y(request.in_use_bytes));
    format!(
        "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#b3261e\" \
         fill-opacity=\"0.18\" stroke=\"#b3261e\" stroke-width=\"1.5\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#b3261e\" font-weight=\"600\">request \
         for {} failed</text>\n",
        RIGHT - x,
        bottom - top,
        x - 6.0,
        top + 12.0,
        Bytes(request.requested_bytes)
    )
}

/// Draws the peak with its label, and other markers as ticks with their label as a tooltip.
fn markers(timeline: &Timeline, scale: &Scale) -> String {
    let mut svg = String::new();
    for marker in &timeline.markers {
        let (x, label) = (scale.x(marker.position), markup(&marker.label));
        if marker.label.starts_with("peak") {
            let anchor = if x > (LEFT + RIGHT) / 2.0 { "end" } else { "start" };
            svg += &format!(
                "<path d=\"M{x:.1} {:.1}V{BOTTOM}\" stroke=\"#b3261e\" stroke-width=\"1.5\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#b3261e\" \
                 font-weight=\"600\">{label}</text>\n",
                TOP - 14.0,
                TOP - 18.0
            );
        } else {
            svg += &format!(
                "<path d=\"M{x:.1} {BOTTOM}v5\" stroke=\"#5a6571\"><title>{label}</title></path>\n"
            );
        }
    }
    svg
}

fn legend(timeline: &Timeline) -> String {
    let mut svg = String::new();
    let mut x = LEFT;
    let y = HEIGHT - 20.0;
    for (series, (color, dashes)) in timeline.series.iter().zip(STROKES.iter().cycle()) {
        let label = truncate(&series.label, 40);
        svg += &format!(
            "<path d=\"M{x:.1} {:.1}h20\" stroke=\"{color}\" stroke-width=\"2.5\" \
             stroke-dasharray=\"{dashes}\"/><text x=\"{:.1}\" y=\"{y}\">{}</text>\n",
            y - 4.0,
            x + 26.0,
            markup(&label)
        );
        x += 26.0 + 7.0 * label.chars().count() as f64 + 24.0;
    }
    svg
}
