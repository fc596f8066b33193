//! All that is known of one process.

use ratatui::text::Line;
use vramfit_analysis::Bytes;

use super::snapshot::{PoolRow, ProcessRow, Reading};
use super::state::State;
use super::table;

/// Samples of the history that are shown.
const MAX_HISTORY: usize = 60;

/// Returns the lines about the selected process; `None` where none is.
pub(super) fn lines(state: &State) -> Option<Vec<Line<'static>>> {
    let (gpu, row) = state.selected_row()?;
    let gpu = &state.snapshot.gpus[gpu];
    let mut lines = vec![
        format!("process {} on {} {}", row.pid, gpu.label, gpu.name),
        format!("command    {}", row.command.as_deref().unwrap_or("unknown")),
        format!(
            "user       {}   container {}",
            row.user.as_deref().unwrap_or("unknown"),
            row.container.as_deref().unwrap_or("none")
        ),
        readings(row),
    ];
    lines.extend(row.warnings().iter().map(|warning| format!("warning    {warning}")));
    let in_use = state.history(&gpu.label, row.pid, |row| &row.in_use);
    let reserved = state.history(&gpu.label, row.pid, |row| &row.reserved);
    lines.extend(history("in use", &in_use, row));
    lines.extend(history("reserved", &reserved, row));
    match &row.pool {
        None => lines
            .push("pool       not published: start the program with `vramfit run -- …`".to_owned()),
        Some(pool) => lines.extend(published(row, pool)),
    }
    Some(lines.into_iter().map(Line::from).collect())
}

/// A reading over the last samples, as a row of bars; the highest is the limit of the pool.
fn history(name: &str, bytes: &[u64], row: &ProcessRow) -> Option<String> {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &bytes[bytes.len().saturating_sub(MAX_HISTORY)..];
    let highest = shown.iter().copied().max()?;
    let limit = row.limit.bytes().unwrap_or(highest).max(highest).max(1);
    let bar = |bytes: &u64| {
        let level = u128::from(*bytes) * BARS.len() as u128 / u128::from(limit);
        BARS[(level as usize).min(BARS.len() - 1)]
    };
    let bars: String = shown.iter().map(bar).collect();
    Some(format!("{name:<10} {bars} of {}, samples: {}", Bytes(limit), shown.len()))
}

fn readings(row: &ProcessRow) -> String {
    let shown = |reading: &Reading| match reading {
        Reading::Bytes(bytes) => Bytes(*bytes).to_string(),
        Reading::Unknown(_) => "n/a".to_owned(),
    };
    format!(
        "memory     driver {}, reserved {}, in use {}, peak {}, largest free {}, limit {}",
        shown(&row.driver),
        shown(&row.reserved),
        shown(&row.in_use),
        shown(&row.peak),
        shown(&row.largest_free),
        shown(&row.limit)
    )
}

fn published(row: &ProcessRow, pool: &PoolRow) -> Vec<String> {
    let client_settings = &pool.client_settings;
    let default = || "JAX's default".to_owned();
    let mut lines = vec![
        format!(
            "settings   allocator {}, fraction {}, preallocate {}",
            client_settings.allocator.clone().unwrap_or_else(default),
            client_settings.fraction.map_or_else(default, |fraction| format!("{fraction:.4}")),
            client_settings
                .preallocate
                .map_or_else(default, |on| if on { "yes" } else { "no" }.to_owned()),
        ),
        format!(
            "JAX        {} (plugin {}), device {} {}, {} allocations",
            pool.jax.as_deref().unwrap_or("unknown version"),
            pool.plugin_api,
            pool.device_id,
            pool.device_kind,
            pool.allocations.map_or_else(|| "n/a".to_owned(), |count| count.to_string()),
        ),
        format!(
            "publisher  {}, every {} ms, {} samples, {} per sample",
            table::liveness(row.liveness),
            pool.interval_ms,
            pool.samples,
            pool.sampling_us.map_or_else(|| "n/a".to_owned(), |cost| format!("{cost:.1} µs")),
        ),
    ];
    if let Some(policy) = &client_settings.policy {
        lines.push(format!("options    {policy}"));
    }
    if let Some(visible) = &client_settings.visible_devices {
        lines.push(format!("visible    CUDA_VISIBLE_DEVICES={visible}"));
    }
    lines
}
