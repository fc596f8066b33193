//! The board without a screen: a table, CSV.

use anstyle::{AnsiColor, Effects};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::snapshot::{Reading, Snapshot};
use super::state::State;
use super::{table, view};

/// Writes the table that `--once` prints, with colors where the state has them.
pub(super) fn table(state: &State, width: usize) -> String {
    let layout = view::layout(state, width, false);
    let lines = layout.head.into_iter().chain(layout.body).chain(layout.notes);
    lines.map(|line| line_text(&line, state.color)).collect()
}

fn line_text(line: &Line<'_>, color: bool) -> String {
    let text: String = line
        .spans
        .iter()
        .map(|span| match ansi_style(line.style.patch(span.style)) {
            style if color => format!("{style}{}{style:#}", span.content),
            _ => span.content.to_string(),
        })
        .collect();
    format!("{}\n", text.trim_end())
}

/// Returns what a terminal is told for a style of the screen.
fn ansi_style(style: Style) -> anstyle::Style {
    let color = match style.fg {
        Some(Color::Green) => Some(AnsiColor::Green.into()),
        Some(Color::Blue) => Some(AnsiColor::Blue.into()),
        Some(Color::Yellow) => Some(AnsiColor::Yellow.into()),
        _ => None,
    };
    let effects = [
        (Modifier::BOLD, Effects::BOLD),
        (Modifier::DIM, Effects::DIMMED),
        (Modifier::REVERSED, Effects::INVERT),
        (Modifier::UNDERLINED, Effects::UNDERLINE),
    ];
    let effects = effects
        .into_iter()
        .filter(|(modifier, _)| style.add_modifier.contains(*modifier))
        .fold(Effects::new(), |all, (_, effect)| all | effect);
    anstyle::Style::new().fg_color(color).effects(effects)
}

/// The first line of the CSV.
pub(super) const CSV_HEADER: &str = "at_unix_ms,gpu,uuid,virtual,gpu_total_bytes,gpu_used_bytes,\
pid,user,container,state,driver_bytes,reserved_bytes,in_use_bytes,peak_bytes,largest_free_block_bytes,\
limit_bytes,command\n";

/// Writes a line for each process on each GPU, and one for a GPU without processes. What is not
/// known is empty.
pub(super) fn csv(snapshot: &Snapshot) -> String {
    let bytes =
        |reading: &Reading| reading.bytes().map_or_else(String::new, |bytes| bytes.to_string());
    let mut text = String::new();
    for gpu in &snapshot.gpus {
        let of_gpu = [
            snapshot.at_unix_ms.to_string(),
            field(&gpu.label),
            gpu.uuid.clone().unwrap_or_default(),
            u8::from(gpu.is_virtual).to_string(),
            bytes(&gpu.total),
            bytes(&gpu.used),
        ];
        if gpu.processes.is_empty() {
            text.push_str(&format!("{}{}\n", of_gpu.join(","), ",".repeat(11)));
        }
        for row in &gpu.processes {
            let of_process = [
                row.pid.to_string(),
                field(row.user.as_deref().unwrap_or("")),
                field(row.container.as_deref().unwrap_or("")),
                table::liveness(row.liveness),
                bytes(&row.driver),
                bytes(&row.reserved),
                bytes(&row.in_use),
                bytes(&row.peak),
                bytes(&row.largest_free),
                bytes(&row.limit),
                field(row.command.as_deref().unwrap_or("")),
            ];
            text.push_str(&format!("{},{}\n", of_gpu.join(","), of_process.join(",")));
        }
    }
    text
}

/// Quotes a text where CSV needs it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use ratatui::text::Span;

    use super::super::snapshot::{GpuRow, ProcessRow};
    use super::*;

    #[test]
    fn a_line_has_its_colors_where_they_are_wanted() {
        let bold = Span::styled("GPU 0", Style::new().add_modifier(Modifier::BOLD));
        let bar = Span::styled("██", Style::new().fg(Color::Green));
        let line = Line::from(vec![bold, Span::raw("  "), bar, Span::raw("  ")]);
        assert_eq!(line_text(&line, false), "GPU 0  ██\n");
        let colored = "\x1b[1mGPU 0\x1b[0m  \x1b[32m██\x1b[0m\n";
        assert_eq!(line_text(&line, true), colored);
    }

    #[test]
    fn every_line_has_as_many_fields_as_the_header() {
        let gpu = |processes| GpuRow { label: "GPU 0".to_owned(), processes, ..GpuRow::default() };
        let snapshot = Snapshot {
            gpus: vec![gpu(Vec::new()), gpu(vec![ProcessRow::default()])],
            ..Snapshot::default()
        };
        let fields = CSV_HEADER.matches(',').count();
        for line in csv(&snapshot).lines() {
            assert_eq!(line.matches(',').count(), fields, "{line}");
        }
        assert_eq!(field("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
