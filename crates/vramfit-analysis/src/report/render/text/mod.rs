//! A report for a terminal: nothing that a name could do to the terminal is in it.

mod chart;
mod curves;
pub(in crate::report) mod findings;
mod map;
mod table;
mod tradeoff;
mod tree;

use vramfit_base::text::{cut, plain, width, wrap};

use crate::bytes::Bytes;
use crate::report::{Action, Bar, Content, Metric, Outcome, Report};

/// Columns that every terminal has.
const WIDTH: usize = 80;

/// How a text is written: by default for a file, in as many columns as every terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns of a line.
    pub columns: usize,
    /// Whether the answer and commands have colors.
    pub is_colored: bool,
}

impl Default for TextStyle {
    fn default() -> Self {
        TextStyle { columns: WIDTH, is_colored: false }
    }
}

impl TextStyle {
    fn paint(self, color: &str, text: &str) -> String {
        if self.is_colored { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The color of commands.
const CYAN: &str = "36";

/// Returns the color of an answer.
fn color_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "1;32",
        Outcome::Failure => "1;31",
        Outcome::Unknown => "1;33",
        Outcome::Neutral => "1",
    }
}
/// Columns between two columns of a table.
const GAP: usize = 2;
/// Columns that the label of a bar may take.
const MAX_BAR_LABEL: usize = 20;

/// Renders a report, with or without its details; the first line is the headline.
pub(in crate::report) fn render(report: &Report, with_details: bool, style: TextStyle) -> String {
    let mut lines = render_sections(report, with_details, style);
    lines.push(String::new());
    for Metric { label, value, .. } in &report.metadata {
        lines.extend(wrap(&format!("{label}: {value}"), style.columns, 2));
    }
    join(&lines)
}

/// Renders what fits on a screen, and says how to get the rest.
pub(in crate::report) fn render_brief(
    report: &Report,
    max_lines: usize,
    option: &str,
    style: TextStyle,
) -> String {
    let mut lines = render_sections(report, false, style);
    let details = report.sections.iter().filter(|section| section.detail);
    let details = details.count();
    let all = lines.len();
    if all > max_lines - 2 {
        lines.truncate(count_whole_rows(&lines, max_lines - 2));
    }
    let hidden = all - lines.len();
    let sections = match details {
        0 => String::new(),
        1 => " and 1 more section".to_owned(),
        count => format!(" and {count} more sections"),
    };
    let rest = match (hidden, details) {
        (0, 0) => return join(&lines),
        (0, _) => sections.trim_start_matches(" and ").to_owned(),
        (1, _) => format!("1 more line{sections}"),
        (count, _) => format!("{count} more lines{sections}"),
    };
    lines.push(String::new());
    lines.push(format!("`{}` shows {rest}", style.paint(CYAN, option)));
    join(&lines)
}

/// Returns how many of the lines to show, at most `max_lines`: neither half a row nor a title or the head of
/// a table alone.
fn count_whole_rows(lines: &[String], max_lines: usize) -> usize {
    let indent = |line: &String| line.len() - line.trim_start().len();
    let start = lines[..max_lines].iter().rposition(String::is_empty);
    let section = start.map_or(0, |blank| blank + 1);
    let end = lines[max_lines..].iter().position(String::is_empty);
    let end = end.map_or(lines.len(), |blank| max_lines + blank);
    if end == max_lines {
        return max_lines;
    }
    // What is indented further than rows are belongs to the row above it.
    let row_indent = lines[section..end].iter().skip(1).map(indent).min();
    let is_row = |line: &String| Some(indent(line)) <= row_indent;
    let cut = (section..=max_lines).rev().find(|&at| is_row(&lines[at]));
    let cut = cut.unwrap_or(section);
    let has_title = Some(indent(&lines[section])) < row_indent;
    let rows = lines[section..cut].iter().filter(|line| is_row(line));
    // A title, the head of a table, and a row.
    let min_rows = if has_title { 3 } else { 1 };
    if rows.count() >= min_rows { cut } else { section.saturating_sub(1) }
}

fn render_sections(report: &Report, with_details: bool, style: TextStyle) -> Vec<String> {
    let mut lines = wrap(&report.headline, style.columns, 2);
    // The answer ends with a colon, behind which its figures are.
    let end = lines[0].find(':').unwrap_or(lines[0].len());
    let answer = style.paint(color_of(report.outcome), &lines[0][..end]);
    lines[0].replace_range(..end, &answer);
    let cause = report.cause.iter();
    lines.extend(cause.flat_map(|sentence| wrap(sentence, style.columns, 2)));
    let sections = report.sections.iter();
    for section in sections.filter(|section| with_details || !section.detail) {
        lines.push(String::new());
        let indent = if section.title.is_empty() {
            0
        } else {
            lines.extend(wrap(&section.title, style.columns, 2));
            2
        };
        let content = section.text.as_ref().unwrap_or(&section.content);
        let content = render_content(content, style.columns - indent, style);
        let indented = content.iter().map(|line| format!("{:indent$}{line}", ""));
        lines.extend(indented);
    }
    lines
}

fn join(lines: &[String]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// Renders the first chart of a report.
pub(in crate::report) fn chart(report: &Report) -> String {
    let mut contents = report.sections.iter().map(|section| &section.content);
    let chart = contents
        .find(|content| matches!(content, Content::Timeline(_) | Content::Tradeoff(_)))
        .map_or_else(Vec::new, |content| render_content(content, WIDTH, TextStyle::default()));
    join(&chart)
}

fn render_content(content: &Content, columns: usize, style: TextStyle) -> Vec<String> {
    match content {
        Content::List(points) => {
            points.iter().flat_map(|point| wrap(&format!("- {point}"), columns, 2)).collect()
        }
        Content::Actions(actions) => {
            actions.iter().flat_map(|action| render_action(action, columns, style)).collect()
        }
        Content::Metrics(metrics) => render_metrics(metrics, columns),
        Content::Table(table) => table::render(table, columns),
        Content::Bars(bars) => bars.iter().map(|bar| render_bar(bar, columns)).collect(),
        Content::Tree(tree) => tree::render(tree, columns),
        Content::Timeline(timeline) => chart::timeline(timeline, columns),
        Content::BufferLifetimes(lifetimes) => chart::live_bytes(lifetimes, columns),
        Content::AddressMap(map) => map::render(map, columns),
        Content::Curves(curves) => curves::curves(curves, columns),
        Content::Breakdown(shares) => curves::breakdown(shares, columns),
        Content::Tradeoff(tradeoff) => tradeoff::render(tradeoff, columns),
        Content::Stacks(_) => Vec::new(),
    }
}

/// The command has lines of its own, which a shell takes as they are.
fn render_action(action: &Action, columns: usize, style: TextStyle) -> Vec<String> {
    const INDENT: usize = 4;
    let mut lines = wrap(&format!("- {}", action.text), columns, 2);
    let indented = |line: &str| {
        let words = line.trim_start();
        line[..line.len() - words.len()].to_owned() + &style.paint(CYAN, words)
    };
    let mut line = format!("{:INDENT$}$", "");
    for word in plain(&action.command).split(' ').filter(|word| !word.is_empty()) {
        let word = cut(word, columns - INDENT - 4);
        // A backslash says that the command goes on in the next line.
        if width(&line) + 1 + width(&word) + 2 > columns {
            lines.push(indented(&format!("{line} \\")));
            line = format!("{:INDENT$} ", "");
        }
        line.push(' ');
        line.push_str(&word);
    }
    if !action.command.is_empty() {
        lines.push(indented(&line));
    }
    lines
}

fn render_metrics(metrics: &[Metric], columns: usize) -> Vec<String> {
    let values = metrics.iter().map(|it| plain(&it.value.to_string()));
    let values: Vec<_> = values.collect();
    let labels = metrics.iter().map(|it| width(&it.label)).max().unwrap_or(0);
    let widest = values.iter().map(|value| width(value)).max().unwrap_or(0);
    let margin = labels + GAP + widest + GAP;
    let lines = metrics.iter().zip(values).flat_map(|(metric, value)| {
        let notes = wrap(&metric.note, columns.saturating_sub(margin).max(20), 0);
        let first = format!("{:labels$}  {value:>widest$}  ", plain(&metric.label));
        let heads = std::iter::once(first).chain(std::iter::repeat(" ".repeat(margin)));
        let lines = heads.zip(notes).map(|(head, note)| head + &note);
        lines.collect::<Vec<_>>()
    });
    lines.collect()
}

fn render_bar(bar: &Bar, columns: usize) -> String {
    let label = if bar.label.is_empty() {
        String::new()
    } else {
        format!("{}  ", cut(&bar.label, MAX_BAR_LABEL))
    };
    let amounts = format!("  {} of {}", Bytes(bar.part_bytes), Bytes(bar.whole_bytes));
    let cells = columns.saturating_sub(width(&label) + width(&amounts) + 2);
    let part_of = |bytes: u64, all: u64| bytes as f64 / all.max(1) as f64 * cells as f64;
    if bar.part_bytes > bar.whole_bytes && cells > 2 {
        // The limit is a tick, and what exceeds it is hatched.
        let limit = part_of(bar.whole_bytes, bar.part_bytes).round() as usize;
        let limit = limit.clamp(0, cells - 2);
        let (full, over) = ("#".repeat(limit), "/".repeat(cells - limit - 1));
        return format!("{label}[{full}|{over}]{amounts}");
    }
    // Something is never nothing, and not quite all is never all.
    let max = cells - usize::from(bar.part_bytes < bar.whole_bytes && cells > 0);
    let min = usize::from(bar.part_bytes > 0).min(max);
    let filled = (part_of(bar.part_bytes, bar.whole_bytes).round() as usize).clamp(min, max);
    let (full, empty) = ("#".repeat(filled), ".".repeat(cells - filled));
    format!("{label}[{full}{empty}]{amounts}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Section;

    #[test]
    fn colors_are_around_the_answer_and_commands_and_lines_are_as_wide_as_the_terminal() {
        let action = Action {
            text: "make the pool larger".to_owned(),
            command: "vramfit run --fraction 0.92 -- python train.py".to_owned(),
        };
        let report = Report {
            title: String::new(),
            outcome: Outcome::Failure,
            headline: "does not fit: short by 1.0 GiB of what the first step needs".to_owned(),
            short_headline: None,
            next_command: None,
            cause: Vec::new(),
            sections: vec![Section::new("ways", Content::Actions(vec![action]))],
            metadata: Vec::new(),
            json: serde_json::Value::Null,
        };
        let style = |is_colored| TextStyle { columns: 50, is_colored };
        let colored = render(&report, false, style(true));
        assert!(colored.starts_with("\x1b[1;31mdoes not fit\x1b[0m: short by"), "{colored:?}");
        assert!(colored.contains("\n      \x1b[36m$ vramfit run"), "{colored:?}");
        let plain = render(&report, false, style(false));
        assert!(plain.lines().all(|line| line.len() <= 50) && plain.lines().count() > 4, "{plain}");
        assert!(!plain.contains('\x1b'));
        let uncolored = ["\x1b[1;31m", "\x1b[36m", "\x1b[0m"];
        let uncolored = uncolored.iter().fold(colored, |text, code| text.replace(code, ""));
        assert_eq!(uncolored, plain);
    }

    #[test]
    fn a_text_is_cut_between_rows_and_never_after_a_title() {
        let text = [
            "does not fit",
            "  on a GPU",
            "",
            "a list",
            "  - one",
            "    more of it",
            "  - two",
            "",
            "a table",
            "  owner  bytes",
            "  a          1",
            "         note",
            "  b          2",
            "",
            "peak  1",
            "      note",
        ];
        let lines = text.map(str::to_owned);
        let shown: Vec<_> = (2..=lines.len()).map(|max| count_whole_rows(&lines, max)).collect();
        assert_eq!(shown, [2, 2, 2, 2, 2, 7, 7, 7, 7, 7, 12, 13, 13, 13, 16]);
    }

    #[test]
    fn a_bar_shows_something_and_never_all_too_early() {
        let bar = |part_bytes, whole_bytes| {
            let label = String::new();
            render_bar(&Bar { label, part_bytes, whole_bytes, ..Bar::default() }, 30)
        };
        assert_eq!(bar(0, 1000), "[.............]  0 B of 1000 B");
        assert!(bar(1, 1000).starts_with("[#."));
        assert!(bar(999, 1000).contains("#.]"));
        assert!(bar(1000, 1000).contains("#]"));
        assert!(!bar(1000, 1000).contains('.'));
        assert_eq!(bar(2000, 1000), "[#####|///]  2.0 KiB of 1000 B");
        assert!(bar(7, 0).contains("[|/"));
    }
}
