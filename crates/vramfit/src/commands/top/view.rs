//! Draws the state: the same lines for the live screen and for `--once`. Computes no figure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};
use vramfit_core::Bytes;
use vramfit_core::published::Liveness;

use super::board::{CardRow, Figure, ProcessRow};
use super::details;
use super::state::State;

/// Narrower than this, a table would have no room for the command.
const TABLE_FROM: usize = 60;
const NUMBER: usize = 10;

const KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("h ?", "this help"),
    ("↑ ↓ j k", "select a process"),
    ("Enter", "details of it"),
    (
        "/",
        "filter by command, user, container or number; Esc ends it",
    ),
    ("t", "by card, or all in one list by size"),
    ("a", "all processes, or only those that JAX published"),
];

/// Lines of the screen's parts.
pub(super) struct Sheet {
    pub(super) head: Vec<Line<'static>>,
    pub(super) body: Vec<Line<'static>>,
    /// Where in the body the selected process is.
    selected: Option<usize>,
    pub(super) notes: Vec<Line<'static>>,
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let sheet = sheet(state, usize::from(area.width), true);
    let details = state.shows_details.then(|| details::lines(state)).flatten();
    // The table comes first: notes and details get what it can spare, and lose their ends.
    let rows = usize::from(area.height);
    let room = rows.saturating_sub(sheet.head.len() + 1);
    let notes = sheet.notes.len().min(room / 3);
    let detail_rows = details
        .as_ref()
        .map_or(0, |lines| (lines.len() + 2).min(room / 2));
    let [head, body, middle, low, keys] = Layout::vertical([
        Constraint::Length(sheet.head.len() as u16),
        Constraint::Min(1),
        Constraint::Length(detail_rows as u16),
        Constraint::Length(notes as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(sheet.head), head);
    let height = usize::from(body.height);
    let first = sheet
        .selected
        .map_or(0, |at| (at + 2).saturating_sub(height));
    let shown: Vec<Line<'_>> = sheet.body.into_iter().skip(first).take(height).collect();
    frame.render_widget(Paragraph::new(shown), body);
    if let Some(lines) = details {
        frame.render_widget(
            Paragraph::new(lines).block(Block::bordered().title(" details ")),
            middle,
        );
    }
    frame.render_widget(Paragraph::new(sheet.notes), low);
    frame.render_widget(Paragraph::new(key_line(state)), keys);
    if state.shows_help {
        help(frame, area);
    }
}

/// Lays everything out for so many columns; `live` marks the selected process.
pub(super) fn sheet(state: &State, width: usize, live: bool) -> Sheet {
    let mut reasons = Vec::new();
    let mut body = Vec::new();
    let mut selected = None;
    let columns = Columns::of(width);
    let board = &state.board;
    let rows = state.rows();
    if columns.is_table() && !rows.is_empty() {
        body.push(columns.heading());
    }
    let mut card_before = None;
    for (position, (card, row)) in rows.iter().enumerate() {
        if state.by_card && card_before != Some(*card) {
            let first = card_before.map_or(0, |before| before + 1);
            push_cards(&mut body, state, first..*card + 1, width);
            card_before = Some(*card);
        }
        let is_selected = live && position == state.selected_position();
        if is_selected {
            selected = Some(body.len());
        }
        let lines = columns.row(row, &mut reasons, is_selected, state.color);
        body.extend(lines);
    }
    if state.by_card {
        let first = card_before.map_or(0, |before| before + 1);
        push_cards(&mut body, state, first..board.cards.len(), width);
    }
    if rows.is_empty() {
        body.push(Line::default());
        body.push(Line::from(nothing(state)));
    }
    let mut notes: Vec<Line<'static>> = (0..)
        .zip(&reasons)
        .map(|(number, why)| Line::from(format!("[{}] {why}", letter(number))))
        .collect();
    let unknown = board.cards.iter().flat_map(|card| {
        let named = |what: &String| format!("{}: not known: {what}", card.label);
        card.unknown.iter().map(named)
    });
    notes.extend(unknown.map(Line::from));
    Sheet {
        head: head(state),
        body,
        selected,
        notes,
    }
}

fn head(state: &State) -> Vec<Line<'static>> {
    let board = &state.board;
    let count = |number: usize, what: &str| {
        format!("{number} {what}{}", if number == 1 { "" } else { "s" })
    };
    let driver = match (&board.driver, &board.cuda) {
        (Some(driver), Some(cuda)) => format!("driver {driver} (CUDA {cuda})"),
        (Some(driver), None) => format!("driver {driver}"),
        _ => "no driver".to_owned(),
    };
    let mut pids: Vec<u32> = board
        .cards
        .iter()
        .flat_map(|card| card.processes.iter().map(|row| row.pid))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    let source = match (&state.source, state.has_ended) {
        (Some(source), true) => format!("{source}, at its end"),
        (Some(source), false) => source.clone(),
        (None, _) => format!("every {}", state.interval_text),
    };
    let facts = [
        driver,
        count(board.cards.len(), "card"),
        count_processes(pids.len()),
        source,
    ];
    let title = Span::styled("vramfit top", Style::new().add_modifier(Modifier::BOLD));
    let mut lines = vec![Line::from(vec![
        title,
        Span::raw(format!("  {}", facts.join("  "))),
    ])];
    if let Some(why) = &board.no_driver {
        let hint = board
            .no_driver_hint
            .as_ref()
            .map_or_else(String::new, |hint| format!(" ({hint})"));
        lines.push(Line::from(format!("no driver: {why}{hint}")));
    }
    lines
}

fn count_processes(number: usize) -> String {
    format!("{number} process{}", if number == 1 { "" } else { "es" })
}

fn nothing(state: &State) -> &'static str {
    if !state.filter.is_empty() {
        "No process passes the filter; Esc ends it."
    } else if state.only_jax {
        "No JAX process publishes its pool: start one with `vramfit run -- …`."
    } else if state.board.cards.is_empty() {
        "Nothing to show: no driver, and no JAX process that was started with `vramfit run`."
    } else {
        "No process holds memory here."
    }
}

fn push_cards(
    body: &mut Vec<Line<'static>>,
    state: &State,
    range: std::ops::Range<usize>,
    width: usize,
) {
    for card in &state.board.cards[range] {
        body.extend(card_lines(card, width, state.color));
    }
}

/// The line of a card, and the sentence that explains it.
fn card_lines(card: &CardRow, width: usize, color: bool) -> Vec<Line<'static>> {
    let amount = match (&card.used, &card.total) {
        (Figure::Bytes(used), Figure::Bytes(total)) => {
            format!("{} of {}", Bytes(*used), Bytes(*total))
        }
        (Figure::Bytes(used), _) => Bytes(*used).to_string(),
        _ => "memory not known".to_owned(),
    };
    let load = card
        .utilization_percent
        .map(|percent| format!("{percent} %"));
    let heat = card.temperature_c.map(|degrees| format!("{degrees} °C"));
    let power = card
        .power_mw
        .map(|milliwatts| format!("{} W", milliwatts / 1000));
    let facts: Vec<String> = [load, heat, power].into_iter().flatten().collect();
    let facts = facts.join("  ");
    let is_narrow = width < TABLE_FROM;
    let name = if is_narrow {
        card.label.clone()
    } else {
        format!("{}  {}", card.label, card.name)
    };
    let name = Span::styled(name, Style::new().add_modifier(Modifier::BOLD));
    let mut spans = vec![name];
    if !is_narrow {
        let taken = spans[0].width() + amount.chars().count() + facts.chars().count() + 6;
        let cells = width.saturating_sub(taken).min(40);
        spans.push(Span::raw("  "));
        spans.extend(bar(card, cells, color));
    }
    spans.push(Span::raw(format!("  {amount}")));
    if !is_narrow && !facts.is_empty() {
        spans.push(Span::raw(format!("  {facts}")));
    }
    let mut lines = vec![Line::from(spans)];
    if let Some(text) = card.explanation(is_narrow) {
        let quiet = Style::new().add_modifier(Modifier::DIM);
        lines.push(Line::from(Span::styled(format!("  {text}"), quiet)));
    }
    lines
}

/// A card's memory as a bar: in use, reserved by pools, held otherwise, free.
fn bar(card: &CardRow, width: usize, color: bool) -> Vec<Span<'static>> {
    let Some(total) = card.total.bytes().filter(|total| *total > 0) else {
        return vec![Span::raw(" ".repeat(width))];
    };
    let cells = |bytes: u64| {
        (u128::from(bytes.min(total)) * width as u128).div_ceil(u128::from(total)) as usize
    };
    let used = card.used.bytes().unwrap_or(0);
    let reserved = card.reserved_bytes.unwrap_or(0).min(used);
    let in_use = card.in_use_bytes.unwrap_or(0).min(used);
    let (in_use, reserved, used) = (cells(in_use), cells(reserved), cells(used));
    let parts = [
        ('█', in_use, Color::Green),
        ('▓', reserved.saturating_sub(in_use), Color::Blue),
        (
            '▒',
            used.saturating_sub(reserved.max(in_use)),
            Color::Yellow,
        ),
        (
            '·',
            width.saturating_sub(used.max(reserved).max(in_use)),
            Color::Reset,
        ),
    ];
    let part = |(cell, count, paint): (char, usize, Color)| {
        let style = if color {
            Style::new().fg(paint)
        } else {
            Style::new()
        };
        Span::styled(cell.to_string().repeat(count), style)
    };
    parts
        .into_iter()
        .filter(|(_, count, _)| *count > 0)
        .map(part)
        .collect()
}

fn letter(number: usize) -> char {
    char::from(b'a' + (number % 26) as u8)
}

/// Which columns there is room for.
#[derive(Clone, Copy)]
struct Columns {
    width: usize,
    user: usize,
    container: usize,
    numbers: usize,
}

impl Columns {
    fn of(width: usize) -> Self {
        Columns {
            width,
            user: if width >= 96 { 10 } else { 0 },
            container: if width >= 118 { 14 } else { 0 },
            numbers: if width >= 76 { 5 } else { 3 },
        }
    }

    fn is_table(self) -> bool {
        self.width >= TABLE_FROM
    }

    /// What is left for the command.
    fn command(self) -> usize {
        let taken = 2 + 8 + self.user + self.container + self.numbers * NUMBER + 11;
        self.width.saturating_sub(taken).max(4)
    }

    fn heading(self) -> Line<'static> {
        let names = ["DRIVER", "RESERVED", "IN USE", "PEAK", "LRG FREE"];
        let mut text = format!("  {:>7} ", "PID");
        text.push_str(&self.texts("USER", "CONTAINER", "COMMAND"));
        for name in names.iter().take(self.numbers) {
            text.push_str(&format!("{name:>NUMBER$}"));
        }
        text.push_str("  STATE");
        Line::from(Span::styled(
            text,
            Style::new().add_modifier(Modifier::UNDERLINED),
        ))
    }

    fn texts(self, user: &str, container: &str, command: &str) -> String {
        let mut text = String::new();
        for (value, width) in [
            (user, self.user),
            (container, self.container),
            (command, self.command()),
        ] {
            if width > 0 {
                text.push_str(&format!("{:width$}", cut(value, width - 1)));
            }
        }
        text
    }

    fn row(
        self,
        row: &ProcessRow,
        reasons: &mut Vec<String>,
        is_selected: bool,
        color: bool,
    ) -> Vec<Line<'static>> {
        let figures = [
            &row.driver,
            &row.reserved,
            &row.in_use,
            &row.peak,
            &row.largest_free,
        ];
        let mut cells: Vec<String> = Vec::new();
        for figure in figures
            .into_iter()
            .take(if self.is_table() { self.numbers } else { 3 })
        {
            cells.push(match figure {
                Figure::Bytes(bytes) => Bytes(*bytes).to_string(),
                Figure::Unknown(why) => {
                    let known = reasons.iter().position(|reason| reason == why);
                    let number = known.unwrap_or_else(|| {
                        reasons.push(why.clone());
                        reasons.len() - 1
                    });
                    format!("n/a [{}]", letter(number))
                }
            });
        }
        let state = liveness(row.liveness);
        let marker = if is_selected { "> " } else { "  " };
        let command = program(row.command.as_deref().unwrap_or("(not known)"));
        let style = style(row, is_selected, color);
        if !self.is_table() {
            let name = cut(&format!("{marker}{} {command}", row.pid), self.width);
            let inside = format!("    in use {} of {} reserved", cells[2], cells[1]);
            let outside = format!("    driver {}  {state}", cells[0]);
            return [name, inside, outside]
                .map(|text| Line::from(Span::styled(text, style)))
                .into();
        }
        let user = row.user.as_deref().unwrap_or("?");
        let container = row.container.as_deref().unwrap_or("-");
        let mut text = format!("{marker}{:>7} ", row.pid);
        text.push_str(&self.texts(user, container, &command));
        for cell in cells {
            text.push_str(&format!("{cell:>NUMBER$}"));
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
    if is_selected {
        style.add_modifier(Modifier::REVERSED)
    } else {
        style
    }
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

/// Leaves the interpreter out where a script follows, and its folder: what is run matters.
fn program(command: &str) -> String {
    let mut words = command.split_whitespace();
    let first = words.next().unwrap_or("");
    let name = first.rsplit('/').next().unwrap_or(first);
    let rest = words.collect::<Vec<_>>().join(" ");
    if rest.is_empty() {
        name.to_owned()
    } else if name.starts_with("python") {
        rest
    } else {
        format!("{name} {rest}")
    }
}

/// Cuts a text to so many columns.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn key_line(state: &State) -> Line<'static> {
    if state.is_editing {
        return Line::from(format!(
            "filter: {}▏ Enter keeps it, Esc ends it",
            state.filter
        ));
    }
    let filter = if state.filter.is_empty() {
        String::new()
    } else {
        format!("  filter: {}", state.filter)
    };
    let shown = if state.only_jax { "only JAX" } else { "all" };
    Line::from(Span::styled(
        format!("q quit  h help  ↑↓ select  Enter details  / filter  t by card  a {shown}{filter}"),
        Style::new().add_modifier(Modifier::DIM),
    ))
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let mut lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(key, what)| Line::from(format!(" {key:<8} {what}")))
        .collect();
    lines.extend(
        [
            "",
            " DRIVER    held, as nvidia-smi shows it: pool, CUDA context, libraries",
            " RESERVED  of that, taken by JAX's pool",
            " IN USE    of the pool, given out to arrays and running programs",
            " PEAK      the most that was in use since the process began",
            " LRG FREE  the largest free piece of the pool",
            "",
            " █ in use  ▓ reserved by a pool  ▒ held otherwise  · free",
        ]
        .map(Line::from),
    );
    let width = area.width.min(76);
    let height = area.height.min(lines.len() as u16 + 2);
    let place = Rect::new(
        (area.width - width) / 2,
        (area.height - height) / 2,
        width,
        height,
    );
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" help ")),
        place,
    );
}
