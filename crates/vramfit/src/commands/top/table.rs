//! The table of processes: which columns there is room for, and a row of it.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use vramfit_analysis::Bytes;
use vramfit_base::text::{cut_end, without_folder};
use vramfit_model::published::Liveness;

use super::order::SortOrder;
use super::snapshot::{ProcessRow, Reading};

/// Narrower than this, a table would have no room for the command.
pub(super) const MIN_TABLE_COLUMNS: usize = 60;
const NUMBER_COLUMNS: usize = 10;

/// The letter of a reason why something is not known.
pub(super) fn footnote_letter(number: usize) -> char {
    char::from(b'a' + (number % 26) as u8)
}

/// Which columns there is room for.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    width: usize,
    user: usize,
    container: usize,
    numbers: usize,
}

impl Columns {
    pub(super) fn of(width: usize) -> Self {
        Columns {
            width,
            user: if width >= 96 { 10 } else { 0 },
            container: if width >= 118 { 14 } else { 0 },
            numbers: if width >= 76 { 5 } else { 3 },
        }
    }

    pub(super) fn is_table(self) -> bool {
        self.width >= MIN_TABLE_COLUMNS
    }

    /// What is left for the command.
    fn command(self) -> usize {
        let taken = 2 + 8 + self.user + self.container + self.numbers * NUMBER_COLUMNS + 11;
        self.width.saturating_sub(taken).max(4)
    }

    pub(super) fn heading(self, order: SortOrder) -> Line<'static> {
        let names = ["DRIVER", "RESERVED", "IN USE", "PEAK", "LRG FREE"];
        let mut text = format!("  {:>7} ", "PID");
        text.push_str(&self.texts("USER", "CONTAINER", "COMMAND"));
        for name in names.iter().take(self.numbers) {
            let mark = if order.column() == Some(name) { "▼" } else { "" };
            text.push_str(&format!("{:>NUMBER_COLUMNS$}", format!("{mark}{name}")));
        }
        text.push_str("  STATE");
        Line::from(Span::styled(text, Style::new().add_modifier(Modifier::UNDERLINED)))
    }

    fn texts(self, user: &str, container: &str, command: &str) -> String {
        let mut text = String::new();
        for (value, width) in
            [(user, self.user), (container, self.container), (command, self.command())]
        {
            if width > 0 {
                text.push_str(&format!("{:width$}", cut_end(value, width - 1)));
            }
        }
        text
    }

    /// The line or lines of a process; what is not known gets a letter, and its reason an entry.
    pub(super) fn row(
        self,
        row: &ProcessRow,
        reasons: &mut Vec<String>,
        is_selected: bool,
        color: bool,
    ) -> Vec<Line<'static>> {
        let readings = [&row.driver, &row.reserved, &row.in_use, &row.peak, &row.largest_free];
        let mut cells: Vec<String> = Vec::new();
        for reading in readings.into_iter().take(if self.is_table() { self.numbers } else { 3 }) {
            cells.push(match reading {
                Reading::Bytes(bytes) => Bytes(*bytes).to_string(),
                Reading::Unknown(why) => {
                    let known = reasons.iter().position(|reason| reason == why);
                    let number = known.unwrap_or_else(|| {
                        reasons.push(why.clone());
                        reasons.len() - 1
                    });
                    format!("n/a [{}]", footnote_letter(number))
                }
            });
        }
        let mark = if row.warnings().is_empty() { "" } else { " [!]" };
        let state = liveness(row.liveness) + mark;
        let marker = if is_selected { "> " } else { "  " };
        let command = program(row.command.as_deref().unwrap_or("(unknown)"));
        let style = style(row, is_selected, color);
        if !self.is_table() {
            let name = cut_end(&format!("{marker}{} {command}", row.pid), self.width);
            let inside = format!("    in use {} of {} reserved", cells[2], cells[1]);
            let outside = format!("    driver {}  {state}", cells[0]);
            return [name, inside, outside]
                .map(|text| Line::from(Span::styled(text, style)))
                .into();
        }
        let user = row.user.as_deref().unwrap_or("?");
        let container = row.container.as_deref().unwrap_or("-");
        let mut text = format!("{marker}{:>7} ", row.pid);
        text.push_str(&self.texts(user, container, command));
        for cell in cells {
            text.push_str(&format!("{cell:>NUMBER_COLUMNS$}"));
        }
        text.push_str(&format!("  {state}"));
        vec![Line::from(Span::styled(text, style))]
    }
}

fn style(row: &ProcessRow, is_selected: bool, color: bool) -> Style {
    let style = match row.liveness {
        Some(Liveness::Fresh) | None => Style::new(),
        Some(_) if color => Style::new().fg(Color::Yellow).add_modifier(Modifier::DIM),
        Some(_) => Style::new().add_modifier(Modifier::DIM),
    };
    if is_selected { style.add_modifier(Modifier::REVERSED) } else { style }
}

/// Says in a word whether a pool's figures are of now.
pub(super) fn liveness(liveness: Option<Liveness>) -> String {
    match liveness {
        None => "-".to_owned(),
        Some(Liveness::Fresh) => "live".to_owned(),
        Some(Liveness::Silent { for_ms }) => format!("stale {}", age(for_ms)),
        Some(Liveness::Gone { for_ms }) => format!("gone {}", age(for_ms)),
        Some(Liveness::OtherBoot) => "gone".to_owned(),
    }
}

fn age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        0 => format!("{:.1}s", milliseconds as f64 / 1000.0),
        seconds if seconds < 100 => format!("{seconds}s"),
        seconds => format!("{}m", seconds / 60),
    }
}

/// Leaves the interpreter out where a script follows: what is run matters.
fn program(command: &str) -> &str {
    let command = without_folder(command);
    match command.split_once(' ') {
        Some((name, script)) if name.starts_with("python") => script,
        _ => command,
    }
}
