//! For programs.

use serde_json::{Value, json};
use vramfit_base::JSON_SCHEMA;

use crate::check::outcome::Outcome;
use crate::check::report::Row;
use crate::check::{Amount, CheckReport};
use crate::check::{LockLine, WholeRun};
use crate::report::conditions_json;

impl CheckReport {
    /// Returns the JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "schema": JSON_SCHEMA,
            "passes": self.passes(),
            "base": (!self.base.is_empty()).then_some(&self.base),
            "rows": self.rows.iter().map(|row| row_json(self, row)).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

fn row_json(report: &CheckReport, row: &Row) -> Value {
    let reason = match &row.outcome {
        Outcome::OverLimit { reason }
        | Outcome::NotReproducible { reason }
        | Outcome::Failed { reason } => Some(reason),
        _ => None,
    };
    let id = serde_json::to_value(&row.outcome).unwrap_or_default()["id"].clone();
    json!({
        "entry": row.entry,
        "gpu": row.gpu,
        "outcome": id,
        "passes": row.outcome.passes(),
        "reason": reason,
        "text": row.summary(),
        "details": row.details(&report.base, usize::MAX),
        "measured": row.measured.as_ref().map(line_json),
        "accepted": row.accepted.as_ref().map(line_json),
        "base": row.base.as_ref().map(line_json),
        "limit_bytes": row.measured.as_ref().map(|_| row.limit_bytes),
        "max_bytes": row.limits.max,
        "tolerance": amount_json(row.limits.tolerance),
        "growth": row.growth,
        "accepted_peaks": row.history,
        "conditions": conditions_json(&row.conditions),
    })
}

fn line_json(line: &LockLine) -> Value {
    json!({
        "jax": line.key.jax,
        "plugin": line.plugin,
        "libraries": line.libraries,
        "peak_bytes": line.figures.peak_bytes,
        "steady_state_bytes": line.figures.steady_state_bytes,
        "temp_bytes": line.figures.temp_bytes,
        "programs": line.programs,
        "whole_run_peak_bytes": line.whole_run.and_then(WholeRun::peak_bytes),
    })
}

fn amount_json(amount: Amount) -> Value {
    match amount {
        Amount::Bytes(bytes) => json!({ "bytes": bytes }),
        Amount::Percent(percent) => json!({ "percent": percent }),
    }
}
