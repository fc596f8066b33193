//! A GPU on the screen: its bar, its figures, and the sentence that explains them.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use vramfit_analysis::Bytes;

use super::snapshot::{GpuRow, Reading};
use super::table::MIN_TABLE_COLUMNS;

/// The line of a GPU, and the sentence that explains it.
pub(super) fn lines(gpu: &GpuRow, width: usize, color: bool) -> Vec<Line<'static>> {
    let amount = match (&gpu.used, &gpu.total) {
        (Reading::Bytes(used), Reading::Bytes(total)) => {
            format!("{} of {}", Bytes(*used), Bytes(*total))
        }
        (Reading::Bytes(used), _) => Bytes(*used).to_string(),
        _ => "memory unknown".to_owned(),
    };
    let load = gpu.utilization_percent.map(|percent| format!("{percent} %"));
    let heat = gpu.temperature_c.map(|degrees| format!("{degrees} °C"));
    let power = gpu.power_mw.map(|milliwatts| format!("{} W", milliwatts / 1000));
    let facts: Vec<String> = [load, heat, power].into_iter().flatten().collect();
    let facts = facts.join("  ");
    let is_narrow = width < MIN_TABLE_COLUMNS;
    let name = if is_narrow { gpu.label.clone() } else { format!("{}  {}", gpu.label, gpu.name) };
    let name = Span::styled(name, Style::new().add_modifier(Modifier::BOLD));
    let mut spans = vec![name];
    if !is_narrow {
        let taken = spans[0].width() + amount.chars().count() + facts.chars().count() + 6;
        let cells = width.saturating_sub(taken).min(40);
        spans.push(Span::raw("  "));
        spans.extend(bar(gpu, cells, color));
    }
    spans.push(Span::raw(format!("  {amount}")));
    if !is_narrow && !facts.is_empty() {
        spans.push(Span::raw(format!("  {facts}")));
    }
    let mut lines = vec![Line::from(spans)];
    if let Some(text) = gpu.explanation(is_narrow) {
        let quiet = Style::new().add_modifier(Modifier::DIM);
        lines.push(Line::from(Span::styled(format!("  {text}"), quiet)));
    }
    lines
}

/// A GPU's memory as a bar: in use, reserved by pools, held otherwise, free.
fn bar(gpu: &GpuRow, width: usize, color: bool) -> Vec<Span<'static>> {
    let Some(total) = gpu.total.bytes().filter(|total| *total > 0) else {
        return vec![Span::raw(" ".repeat(width))];
    };
    let cells = |bytes: u64| {
        (u128::from(bytes.min(total)) * width as u128).div_ceil(u128::from(total)) as usize
    };
    let used = gpu.used.bytes().unwrap_or(0);
    let reserved = gpu.reserved_bytes.unwrap_or(0).min(used);
    let in_use = gpu.in_use_bytes.unwrap_or(0).min(used);
    let (in_use, reserved, used) = (cells(in_use), cells(reserved), cells(used));
    let parts = [
        ('█', in_use, Color::Green),
        ('▓', reserved.saturating_sub(in_use), Color::Blue),
        ('▒', used.saturating_sub(reserved.max(in_use)), Color::Yellow),
        ('·', width.saturating_sub(used.max(reserved).max(in_use)), Color::Reset),
    ];
    let part = |(cell, count, paint): (char, usize, Color)| {
        let style = if color { Style::new().fg(paint) } else { Style::new() };
        Span::styled(cell.to_string().repeat(count), style)
    };
    parts.into_iter().filter(|(_, count, _)| *count > 0).map(part).collect()
}
