//! The report of a search for a plan: what was measured, what to choose, what it takes.

use super::{
    Alternative, AlternativeKind, Content, Metric, Report, Section, Table, Tradeoff, Value,
};
use crate::planning::CostKind;

/// What a search for a plan has found.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSummary {
    /// The result in one sentence.
    pub headline: String,
    /// Whether a plan meets the budget; `None` where that is unknown.
    pub success: Option<bool>,
    /// What was measured; the first is the program as it is.
    pub rows: Vec<PlanRow>,
    /// What plans are compared by, beside their peak.
    pub cost: CostKind,
    /// What the peak must not exceed.
    pub limit_bytes: u64,
    /// Names of the GPUs.
    pub gpus: Vec<String>,
    /// What else there is to know, a sentence each.
    pub notes: Vec<String>,
    /// The nearest edits of the program, a sentence each.
    pub edits: Vec<String>,
    /// The largest entries at the recommended peak.
    pub largest: Vec<(String, u64)>,
    /// Command, GPU, versions.
    pub metadata: Vec<(&'static str, String)>,
    /// What `--json` prints.
    pub json: serde_json::Value,
}

/// A measured plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRow {
    /// What is changed, each in a few words; empty for nothing.
    pub moves: Vec<String>,
    /// Peak of the fullest GPU, in bytes.
    pub peak_bytes: u64,
    /// Microseconds of a step: a bound that no run can beat, and by XLA's model.
    pub time_us: Option<(f64, f64)>,
    /// Samples of a step; `None` where that is not known.
    pub batch: Option<u64>,
    /// Share of the operations of differentiated functions that run twice, from 0 to 1.
    pub recomputed_share: f64,
    /// Pinned host memory, in bytes.
    pub host_memory_bytes: u64,
    /// What the pool of each GPU has left, in bytes; negative where it lacks them, `None` where not measured.
    pub spare_bytes: Vec<Option<i64>>,
    /// What it is among the others.
    pub kind: AlternativeKind,
}

impl PlanRow {
    fn label(&self) -> String {
        match &self.moves[..] {
            [] => "as it is".to_owned(),
            moves => moves.join("; "),
        }
    }

    fn milliseconds(&self) -> Option<f64> {
        self.time_us.map(|(_, model_us)| model_us / 1e3)
    }

    /// Returns the samples per second, by XLA's model.
    pub fn samples_per_second(&self) -> Option<f64> {
        Some(self.batch? as f64 / self.milliseconds()? * 1e3)
    }
}

impl PlanSummary {
    /// Returns the measured plans as points, without those that are beaten by far: they would leave no room
    /// for the others.
    fn tradeoff(&self) -> Tradeoff {
        let is_dominated = |row: &&PlanRow| row.kind == AlternativeKind::Dominated;
        let choices = || self.rows.iter().filter(|row| !is_dominated(row));
        let max_bytes = choices().map(|row| row.peak_bytes).max().unwrap_or(0);
        let max_cost = choices().map(|row| self.cost(row)).fold(0.0, f64::max);
        let is_near = |row: &&PlanRow| row.peak_bytes <= max_bytes && self.cost(row) <= max_cost;
        let shown = self.rows.iter().filter(|row| !is_dominated(row) || is_near(row));
        let alternatives = shown.map(|row| Alternative {
            label: row.label(),
            bytes: row.peak_bytes,
            cost: self.cost(row),
            kind: row.kind,
        });
        Tradeoff {
            cost: match self.cost {
                CostKind::StepTime => "time of a step in ms, estimated",
                CostKind::SampleTime => "time of 1,000 samples in ms, estimated",
                CostKind::RecomputedShare => "recomputed operations in %",
            },
            alternatives: alternatives.collect(),
            limit_bytes: Some(self.limit_bytes),
        }
    }

    fn cost(&self, row: &PlanRow) -> f64 {
        match self.cost {
            CostKind::StepTime => row.milliseconds().unwrap_or(f64::NAN),
            CostKind::SampleTime => row.samples_per_second().map_or(f64::NAN, |it| 1e6 / it),
            CostKind::RecomputedShare => 100.0 * row.recomputed_share,
        }
    }

    fn table(&self, rows: &[&PlanRow], note: &str) -> Table {
        let mut columns =
            vec!["plan", "peak", "time of a step", "samples/s", "recomputed", "host memory"];
        let has_batch = rows.iter().any(|row| row.batch.is_some());
        columns.retain(|column| has_batch || *column != "samples/s");
        let on: Vec<String> = self.gpus.iter().map(|name| format!("on {name}")).collect();
        columns.extend(on.iter().map(String::as_str));
        columns.push("change");
        let rows =
            rows.iter().map(|row| {
                let time = row.time_us.map(|(low_us, model_us)| {
                    Value::Text(format!("{:.1} to {:.1} ms", low_us / 1e3, model_us / 1e3))
                });
                let mut cells = vec![
                    Value::Text(row.kind.label().to_owned()),
                    Value::Bytes(row.peak_bytes),
                    time.unwrap_or(Value::Missing("unknown")),
                ];
                if has_batch {
                    let rate = row.samples_per_second();
                    cells.push(rate.map_or(Value::Missing("unknown"), |rate| {
                        Value::Text(format!("{rate:.0}"))
                    }));
                }
                cells.extend([
                    Value::Fraction(row.recomputed_share),
                    Value::Bytes(row.host_memory_bytes),
                ]);
                cells.extend(row.spare_bytes.iter().map(|spare| match spare {
                    Some(bytes) => Value::Change(*bytes),
                    None => Value::Missing("not measured"),
                }));
                cells.push(Value::Text(row.label()));
                cells
            });
        Table::new(&columns, rows.collect(), note)
    }
}

pub(super) fn report(summary: PlanSummary) -> Report {
    let mut shown: Vec<&PlanRow> = summary.rows.iter().collect();
    shown.sort_by_key(|row| std::cmp::Reverse(row.peak_bytes));
    let (front, beaten): (Vec<_>, Vec<_>) =
        shown.into_iter().partition(|row| row.kind != AlternativeKind::Dominated);
    let note = "peak: of the fullest GPU, by a dry run with the change applied. Time of a step: from a \
                bound that no run can beat to XLA's model, not measured. On a GPU: what its pool has \
                left, or lacks";
    let mut sections = vec![
        Section::new("", Content::Tradeoff(summary.tradeoff())),
        Section::new("plans worth choosing", Content::Table(summary.table(&front, note))),
    ];
    sections.extend(Section::list("notes", summary.notes.clone()));
    sections.extend(Section::list("nearest edit by hand, not measured", summary.edits.clone()));
    if !summary.largest.is_empty() {
        let rows = summary.largest.iter();
        let rows = rows.map(|(name, bytes)| vec![Value::Text(name.clone()), Value::Bytes(*bytes)]);
        let table = Table::new(&["entry", "bytes"], rows.collect(), "");
        sections.push(Section::new("largest entries of that peak", Content::Table(table)));
    }
    if !beaten.is_empty() {
        let note = "each has a higher peak and takes longer than a plan worth choosing, or as long";
        sections.push(Section::detail(
            "other plans that were measured",
            Content::Table(summary.table(&beaten, note)),
        ));
    }
    let metadata = summary.metadata.iter();
    Report {
        title: "vramfit plan".to_owned(),
        outcome: summary.success.into(),
        sections,
        metadata: metadata.map(|(label, text)| Metric::text(label, text.clone())).collect(),
        headline: summary.headline,
        cause: Vec::new(),
        json: summary.json,
        ..Report::default()
    }
}
