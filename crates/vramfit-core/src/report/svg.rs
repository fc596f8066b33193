//! Memory over the run as a picture for a paper or an issue: light paper, no script, no style from
//! elsewhere.

use super::escape::markup;
use super::{Body, Line, Report, Timeline};
use crate::bytes::Bytes;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 846.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 296.0;

/// Strokes by the number of the line; none is told from another by its colour alone.
const STROKES: [(&str, &str); 4] = [
    ("#2f6db3", ""),
    ("#dd7a1e", "6 3"),
    ("#16907f", "2 3"),
    ("#a8478f", "9 3 2 3"),
];

/// Renders the first timeline of a report.
pub(super) fn render(report: &Report) -> Option<String> {
    let timeline = report
        .sections
        .iter()
        .find_map(|section| match &section.body {
            Body::Timeline(timeline) => Some(timeline),
            _ => None,
        })?;
    let scale = Scale::of(timeline);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#5a6571\">\n\
         <title>{0}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"14\" y=\"24\" font-size=\"14\" font-weight=\"600\" fill=\"#1a1f25\">{0}</text>\n",
        markup(&shortened(&report.answer, 104))
    );
    svg += &axes(timeline, &scale);
    for (number, line) in timeline.lines.iter().enumerate() {
        svg += &steps(timeline, line, number, &scale);
    }
    svg += &limit(timeline, &scale);
    svg += &marks(timeline, &scale);
    svg += &legend(timeline);
    svg += "</svg>\n";
    Some(svg)
}

/// From positions and bytes to places in the picture.
struct Scale {
    first: u64,
    last: u64,
    most: u64,
}

impl Scale {
    fn of(timeline: &Timeline) -> Scale {
        let bytes = timeline.lines.iter().flat_map(|line| &line.bytes);
        let most = bytes.chain(&timeline.limit_bytes).max();
        Scale {
            first: timeline.at.first().copied().unwrap_or(0),
            last: timeline.at.last().copied().unwrap_or(0),
            most: most.copied().unwrap_or(0).max(1),
        }
    }

    fn x(&self, at: u64) -> f64 {
        let span = self.last.saturating_sub(self.first).max(1) as f64;
        LEFT + at.saturating_sub(self.first) as f64 / span * (RIGHT - LEFT)
    }

    fn y(&self, bytes: u64) -> f64 {
        BOTTOM - bytes as f64 / self.most as f64 * (BOTTOM - TOP)
    }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn axes(timeline: &Timeline, scale: &Scale) -> String {
    let mut svg = String::new();
    let mut step = 1_u64;
    while scale.most / step > 5 {
        step *= 2;
    }
    for value in (0..=scale.most / step).map(|count| count * step) {
        let y = scale.y(value);
        svg += &format!(
            "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#d9dfe5\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 8.0,
            y + 4.0,
            Bytes(value)
        );
    }
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

/// Draws a line as steps. Where many values fall on one dot, it goes from the least to the most of
/// them, so that no peak is lost.
fn steps(timeline: &Timeline, line: &Line, number: usize, scale: &Scale) -> String {
    let mut path = String::new();
    let mut values = timeline.at.iter().zip(&line.bytes).peekable();
    let (mut dot, mut low, mut high) = (f64::NAN, 0, 0);
    while let Some((at, bytes)) = values.next() {
        let x = (scale.x(*at) * 2.0).round() / 2.0;
        if x == dot {
            (low, high) = (low.min(*bytes), high.max(*bytes));
        } else {
            let word = if path.is_empty() { 'M' } else { 'H' };
            path += &match word {
                'M' => format!("M{x} {:.1}", scale.y(*bytes)),
                _ => format!("H{x}"),
            };
            (dot, low, high) = (x, *bytes, *bytes);
        }
        let leaves = values.peek().is_none_or(|(next, _)| {
            let next = (scale.x(**next) * 2.0).round() / 2.0;
            next != x
        });
        if leaves {
            for bytes in [high, low, *bytes] {
                path += &format!("V{:.1}", scale.y(bytes));
            }
        }
    }
    let (colour, dashes) = STROKES[number % STROKES.len()];
    format!(
        "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
         stroke-dasharray=\"{dashes}\" stroke-linejoin=\"round\"/>\n"
    )
}

fn limit(timeline: &Timeline, scale: &Scale) -> String {
    let Some(limit) = timeline.limit_bytes else {
        return String::new();
    };
    let y = scale.y(limit);
    format!(
        "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#1a1f25\" stroke-dasharray=\"5 4\"/>\
         <text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#1a1f25\">limit {}</text>\n",
        y - 6.0,
        Bytes(limit)
    )
}

/// Draws the peak with its name and other moments as ticks that tell theirs to a pointer.
fn marks(timeline: &Timeline, scale: &Scale) -> String {
    let mut svg = String::new();
    for mark in &timeline.marks {
        let (x, label) = (scale.x(mark.at), markup(&mark.label));
        if mark.label.starts_with("peak") {
            let anchor = if x > (LEFT + RIGHT) / 2.0 {
                "end"
            } else {
                "start"
            };
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
    for (line, (colour, dashes)) in timeline.lines.iter().zip(STROKES.iter().cycle()) {
        let label = shortened(&line.label, 40);
        svg += &format!(
            "<path d=\"M{x:.1} {:.1}h20\" stroke=\"{colour}\" stroke-width=\"2.5\" \
             stroke-dasharray=\"{dashes}\"/><text x=\"{:.1}\" y=\"{y}\">{}</text>\n",
            y - 4.0,
            x + 26.0,
            markup(&label)
        );
        x += 26.0 + 7.0 * label.chars().count() as f64 + 24.0;
    }
    svg
}
