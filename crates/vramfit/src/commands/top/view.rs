//! Draws the state: the same lines for the live screen and for `--once`. Computes no figure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::order::SortOrder;
use super::state::State;
use super::table::{Columns, footnote_letter};
use super::{details, gpu_lines};

const KEYS: &[(&str, &str)] = &[
    ("q", "quit"),
    ("h ?", "show this help"),
    ("↑ ↓ j k", "select a process"),
    ("Enter", "show its details"),
    ("/", "filter by command, user, container or PID; Esc clears it"),
    ("t s", "group by GPU; sort by the next column"),
    ("Space", "pause, or continue"),
    ("← →", "the sample before, or after"),
    ("a", "show all processes, or only JAX"),
];

/// Lines of the screen's parts.
pub(super) struct ScreenText {
    pub(super) head: Vec<Line<'static>>,
    pub(super) body: Vec<Line<'static>>,
    /// Where in the body the selected process is.
    selected: Option<usize>,
    pub(super) notes: Vec<Line<'static>>,
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let layout = layout(state, usize::from(area.width), true);
    let details = state.shows_details.then(|| details::lines(state)).flatten();
    // The table comes first: notes and details get what it can spare, and lose their ends.
    let rows = usize::from(area.height);
    let room = rows.saturating_sub(layout.head.len() + 1);
    let notes = layout.notes.len().min(room / 3);
    let inner = usize::from(area.width).saturating_sub(2).max(1);
    let wrapped = |line: &Line<'_>| line.width().div_ceil(inner).max(1);
    let detail_rows = details.as_ref().map_or(0, |lines| {
        let rows: usize = lines.iter().map(wrapped).sum();
        (rows + 2).min(room / 2)
    });
    let [head, body, middle, low, keys] = Layout::vertical([
        Constraint::Length(layout.head.len() as u16),
        Constraint::Min(1),
        Constraint::Length(detail_rows as u16),
        Constraint::Length(notes as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(layout.head), head);
    let height = usize::from(body.height);
    let first = layout.selected.map_or(0, |at| (at + 2).saturating_sub(height));
    let shown: Vec<Line<'_>> = layout.body.into_iter().skip(first).take(height).collect();
    frame.render_widget(Paragraph::new(shown), body);
    if let Some(lines) = details {
        frame.render_widget(
            Paragraph::new(lines)
                .wrap(Wrap { trim: false })
                .block(Block::bordered().title(" details ")),
            middle,
        );
    }
    frame.render_widget(Paragraph::new(layout.notes), low);
    frame.render_widget(Paragraph::new(key_line(state)), keys);
    if state.shows_help {
        help(frame, area);
    }
}

/// Lays everything out for this many columns; `live` marks the selected process.
pub(super) fn layout(state: &State, width: usize, live: bool) -> ScreenText {
    let mut reasons = Vec::new();
    let mut body = Vec::new();
    let mut selected = None;
    let columns = Columns::of(width);
    let snapshot = &state.snapshot;
    let rows = state.rows();
    if columns.is_table() && !rows.is_empty() {
        body.push(columns.heading(state.order));
    }
    let mut gpu_before = None;
    for (position, (gpu, row)) in rows.iter().enumerate() {
        if state.order == SortOrder::Gpu && gpu_before != Some(*gpu) {
            let first = gpu_before.map_or(0, |before| before + 1);
            push_gpus(&mut body, state, first..*gpu + 1, width);
            gpu_before = Some(*gpu);
        }
        let is_selected = live && position == state.selected;
        if is_selected {
            selected = Some(body.len());
        }
        let lines = columns.row(row, &mut reasons, is_selected, state.color);
        body.extend(lines);
    }
    if state.order == SortOrder::Gpu {
        let first = gpu_before.map_or(0, |before| before + 1);
        push_gpus(&mut body, state, first..snapshot.gpus.len(), width);
    }
    if rows.is_empty() {
        body.push(Line::default());
        body.push(Line::from(nothing(state)));
    }
    let mut notes: Vec<Line<'static>> = (0..)
        .zip(&reasons)
        .map(|(number, why)| Line::from(format!("[{}] {why}", footnote_letter(number))))
        .collect();
    notes.extend(rows.iter().flat_map(|(gpu, row)| {
        let label = &snapshot.gpus[*gpu].label;
        let named =
            move |warning: String| Line::from(format!("[!] {} on {label}: {warning}", row.pid));
        row.warnings().into_iter().map(named)
    }));
    let unknown = snapshot.gpus.iter().flat_map(|gpu| {
        let named = |what: &String| format!("{}: unknown: {what}", gpu.label);
        gpu.unknown.iter().map(named)
    });
    notes.extend(unknown.map(Line::from));
    ScreenText { head: head(state), body, selected, notes }
}

fn head(state: &State) -> Vec<Line<'static>> {
    let snapshot = &state.snapshot;
    let count = |number: usize, what: &str| {
        format!("{number} {what}{}", if number == 1 { "" } else { "s" })
    };
    let driver = match (&snapshot.driver, &snapshot.cuda) {
        (Some(driver), Some(cuda)) => format!("driver {driver} (CUDA {cuda})"),
        (Some(driver), None) => format!("driver {driver}"),
        _ => "no driver".to_owned(),
    };
    let mut pids: Vec<u32> =
        snapshot.gpus.iter().flat_map(|gpu| gpu.processes.iter().map(|row| row.pid)).collect();
    pids.sort_unstable();
    pids.dedup();
    let source = match (&state.source, state.has_ended) {
        (Some(source), true) => format!("{source} (finished)"),
        (Some(source), false) => source.clone(),
        (None, _) => format!("every {}", state.interval_text),
    };
    let mut facts =
        vec![driver, count(snapshot.gpus.len(), "GPU"), count_processes(pids.len()), source];
    if state.source.is_some() || state.samples_behind.is_some() {
        facts.push(time_of_day(snapshot.at_unix_ms));
    }
    match state.samples_behind {
        Some(0) => facts.push("paused".to_owned()),
        Some(1) => facts.push("paused, 1 sample behind".to_owned()),
        Some(behind) => facts.push(format!("paused, {behind} samples behind")),
        None => {}
    }
    let title = Span::styled("vramfit top", Style::new().add_modifier(Modifier::BOLD));
    let mut lines = vec![Line::from(vec![title, Span::raw(format!("  {}", facts.join("  ")))])];
    if let Some(why) = &snapshot.no_driver {
        let hint =
            snapshot.no_driver_hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
        lines.push(Line::from(format!("no driver: {why}{hint}")));
    }
    lines
}

/// Returns the time of a sample, in UTC.
fn time_of_day(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}

fn count_processes(number: usize) -> String {
    format!("{number} process{}", if number == 1 { "" } else { "es" })
}

fn nothing(state: &State) -> &'static str {
    if !state.filter.is_empty() {
        "No process matches the filter; Esc clears it."
    } else if state.only_jax {
        "No JAX process publishes its pool: start one with `vramfit run -- …`."
    } else if state.snapshot.gpus.is_empty() {
        "Nothing to show: no driver, and no JAX process started with `vramfit run`."
    } else {
        "No process uses GPU memory."
    }
}

fn push_gpus(
    body: &mut Vec<Line<'static>>,
    state: &State,
    range: std::ops::Range<usize>,
    width: usize,
) {
    for one in &state.snapshot.gpus[range] {
        body.extend(gpu_lines::lines(one, width, state.color));
    }
}

fn key_line(state: &State) -> Line<'static> {
    if state.is_editing {
        return Line::from(format!("filter: {}▏ Enter applies it, Esc clears it", state.filter));
    }
    let filter =
        if state.filter.is_empty() { String::new() } else { format!("  filter: {}", state.filter) };
    let shown = if state.only_jax { "only JAX" } else { "all" };
    let order = state.order.column().unwrap_or("GPU");
    Line::from(Span::styled(
        format!(
            "q quit  h help  ↑↓ select  Enter details  / filter  t s by {order}  a {shown}{filter}"
        ),
        Style::new().add_modifier(Modifier::DIM),
    ))
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let mut lines: Vec<Line<'_>> =
        KEYS.iter().map(|(key, what)| Line::from(format!(" {key:<8} {what}"))).collect();
    lines.extend(
        [
            "",
            " DRIVER    used, as in nvidia-smi: pool, CUDA context, libraries",
            " RESERVED  reserved by JAX's pool",
            " IN USE    in use by arrays and running programs",
            " PEAK      peak of IN USE since the process started",
            " LRG FREE  largest free block of the pool",
            "",
            " █ in use  ▓ reserved by a pool  ▒ other use  · free",
        ]
        .map(Line::from),
    );
    let width = area.width.min(76);
    let height = area.height.min(lines.len() as u16 + 2);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" help ")), place);
}
