//! All that is known of one process.

use ratatui::text::Line;
use vramfit_core::Bytes;

use super::board::{Figure, Pool, ProcessRow};
use super::state::State;
use super::table;

/// Returns the lines about the selected process; `None` where none is.
pub(super) fn lines(state: &State) -> Option<Vec<Line<'static>>> {
    let (gpu, row) = state.selected()?;
    let gpu = &state.board.gpus[gpu];
    let mut lines = vec![
        format!("process {} on {} {}", row.pid, gpu.label, gpu.name),
        format!(
            "command    {}",
            row.command.as_deref().unwrap_or("not known")
        ),
        format!(
            "user       {}   container {}",
            row.user.as_deref().unwrap_or("not known"),
            row.container.as_deref().unwrap_or("none")
        ),
        figures(row),
    ];
    match &row.pool {
        None => lines
            .push("pool       not published: start the program with `vramfit run -- …`".to_owned()),
        Some(pool) => lines.extend(published(row, pool)),
    }
    Some(lines.into_iter().map(Line::from).collect())
}

fn figures(row: &ProcessRow) -> String {
    let shown = |figure: &Figure| match figure {
        Figure::Bytes(bytes) => Bytes(*bytes).to_string(),
        Figure::Unknown(_) => "n/a".to_owned(),
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

fn published(row: &ProcessRow, pool: &Pool) -> Vec<String> {
    let asked = &pool.asked;
    let default = || "JAX's default".to_owned();
    let mut lines = vec![
        format!(
            "asked      allocator {}, fraction {}, preallocate {}",
            asked.allocator.clone().unwrap_or_else(default),
            asked
                .fraction
                .map_or_else(default, |fraction| format!("{fraction:.4}")),
            asked
                .preallocate
                .map_or_else(default, |on| if on { "yes" } else { "no" }.to_owned()),
        ),
        format!(
            "JAX        {} (plugin {}), device {} {}, {} allocations",
            pool.jax.as_deref().unwrap_or("version not told"),
            pool.plugin_api,
            pool.device_id,
            pool.device_kind,
            pool.allocations
                .map_or_else(|| "n/a".to_owned(), |count| count.to_string()),
        ),
        format!(
            "publisher  {}, every {} ms, {} looks, {} a look",
            table::liveness(row.liveness),
            pool.interval_ms,
            pool.samples,
            pool.microseconds_a_sample
                .map_or_else(|| "n/a".to_owned(), |cost| format!("{cost:.1} µs")),
        ),
    ];
    if let Some(policy) = &asked.policy {
        lines.push(format!("options    {policy}"));
    }
    if let Some(visible) = &asked.visible_devices {
        lines.push(format!("visible    CUDA_VISIBLE_DEVICES={visible}"));
    }
    lines
}
