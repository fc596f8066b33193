//! What a search of plans came to: JSON, the report, and the plan file.

use serde_json::{Map, Value, json};
use vramfit_analysis::planning::{CostKind, LeftAlone, Plan, PlanSource};
use vramfit_analysis::report::{
    AlternativeKind, PlanRow, PlanSummary, Report, conditions_json, describe_phases,
    estimated_time, qualify_headline,
};
use vramfit_analysis::{Bytes, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_runner::plan::{FoundPlans, FoundRow, SearchSpec, XlaRemat};

use crate::command_line::shell_line;

/// What library routines may take beside one in this many bytes of the peak is said.
const MIN_SCRATCH_FRACTION: u64 = 100;

/// What a search has found, and what was searched.
pub(super) struct PlanResults<'a> {
    pub(super) found: &'a FoundPlans,
    pub(super) spec: &'a SearchSpec,
}

impl PlanResults<'_> {
    /// Returns the text of the recommended plan's file.
    ///
    /// # Errors
    /// Those of [`vramfit_analysis::planning::Plan::to_toml`].
    pub(super) fn plan_file(&self) -> Result<String> {
        self.plan_text(&self.found.rows[self.found.recommended])
    }

    fn plan_text(&self, found: &FoundRow) -> Result<String> {
        let command = &self.spec.commands[found.command].words;
        found.row.plan.to_toml(&PlanSource {
            vramfit: env!("CARGO_PKG_VERSION").to_owned(),
            jax: self.found.jax.clone(),
            gpu: self.spec.trial.run.gpus.name.clone(),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            peak_bytes: found.row.peak_bytes,
        })
    }

    /// Returns the results as JSON.
    pub(super) fn to_json(&self) -> Value {
        let row = |found: &FoundRow| self.row_json(found);
        json!({
            "schema": JSON_SCHEMA,
            "gpus": gpu_names(self.spec),
            "budget_bytes": self.spec.budget.map(|budget| budget.0),
            "meets_budget": self.spec.is_met(&self.found.rows[self.found.recommended].row),
            "baseline": row(&self.found.rows[0]),
            "rows": self.found.rows.iter().map(row).collect::<Vec<_>>(),
            "by_time": self.found.cost != CostKind::RecomputedShare,
            "front": self.found.front,
            "recommended": row(&self.found.rows[self.found.recommended]),
            "faster": self.found.faster.map(|faster| row(&self.found.rows[faster])),
            "donation": self.found.edits.iter().find_map(|it| it.edit.to_json("donate", it.peak_bytes)),
            "omission": self.found.edits.iter().find_map(|it| it.edit.to_json("omit", it.peak_bytes)),
            "phases": self.found.phases,
            "trials": self.found.trials,
            "complete": self.found.is_complete,
            "left_alone": self.found.left_alone,
            "failures": self.found.failures.iter().map(|(text, count)| json!({"message": text, "count": count})).collect::<Vec<_>>(),
        })
    }

    fn row_json(&self, found: &FoundRow) -> Value {
        let by_gpu = |values: Vec<Value>| -> Map<String, Value> {
            gpu_names(self.spec).into_iter().zip(values).collect()
        };
        let spare = found.limits.iter().zip(&found.peaks);
        let spare = spare.map(|(limit, peak)| json!(*limit as i64 - *peak as i64));
        let fits = found.row.fits.iter().map(|fits| json!(fits));
        json!({
            "peak_bytes": found.row.peak_bytes,
            "highest_peak_bytes": found.highest_peak_bytes,
            "steps": found.steps,
            "recomputed_share": found.recomputed_share,
            "time": found.time.map(|time| json!({
                "low_us": time.low_us,
                "model_us": time.model_us,
                "unknown_share": time.unknown_share,
                "host_wait_us": time.host_wait_us,
            })),
            "samples_per_second": self.plan_row(found).samples_per_second(),
            "host_memory_bytes": found.row.host_memory_bytes,
            "xla_remat": found.xla_remat.map(|remat| json!({
                "recomputed_us": remat.recomputed_us,
                "margin_bytes": remat.margin_bytes,
            })),
            "moves": self.moves(found),
            "edits": found.row.plan.edits(),
            "plan": self.plan_text(found).ok(),
            "largest": found.largest.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes})).collect::<Vec<_>>(),
            "conditions": conditions_json(&found.conditions),
            "fits": by_gpu(fits.collect()),
            "spare_bytes": by_gpu(spare.collect()),
        })
    }

    pub(super) fn moves(&self, found: &FoundRow) -> Vec<String> {
        let mut moves = self.spec.commands[found.command].values.clone();
        moves.extend(found.row.plan.moves());
        moves
    }

    /// Returns the results as a page shows them.
    pub(super) fn to_report(&self) -> Report {
        Report::from_plan(self.summary())
    }

    pub(super) fn plan_row(&self, found: &FoundRow) -> PlanRow {
        PlanRow {
            moves: self.moves(found),
            peak_bytes: found.row.peak_bytes,
            time_us: found.time.map(|time| (time.low_us, time.model_us)),
            batch: self.spec.commands[found.command].batch(),
            recomputed_share: found.recomputed_share,
            host_memory_bytes: found.row.host_memory_bytes,
            spare_bytes: (0..=self.spec.others.len())
                .map(|gpu| {
                    let (limit, peak) = (found.limits.get(gpu)?, found.peaks.get(gpu)?);
                    Some(*limit as i64 - *peak as i64)
                })
                .collect(),
            kind: AlternativeKind::Dominated,
        }
    }

    fn summary(&self) -> PlanSummary {
        let best = &self.found.rows[self.found.recommended];
        let row = |(index, found): (usize, &FoundRow)| PlanRow {
            kind: match index {
                _ if index == self.found.recommended => AlternativeKind::Recommended,
                0 => AlternativeKind::Unchanged,
                _ if self.found.front.contains(&index) => AlternativeKind::ParetoOptimal,
                _ => AlternativeKind::Dominated,
            },
            ..self.plan_row(found)
        };
        let command = self.spec.trial.command.iter().map(AsRef::as_ref);
        PlanSummary {
            headline: self.headline(),
            success: self.found.answer(self.spec),
            rows: self.found.rows.iter().enumerate().map(row).collect(),
            cost: self.found.cost,
            limit_bytes: self.spec.budget.map_or(best.limits[0], |budget| budget.0),
            gpus: gpu_names(self.spec),
            notes: self.notes(),
            edits: best.row.plan.edits(),
            largest: best.largest.clone(),
            metadata: vec![
                ("command", shell_line(command)),
                ("GPU", gpu_names(self.spec).join(", ")),
                ("jax", self.found.jax.clone()),
                ("dry runs", self.found.trials.to_string()),
            ],
            json: self.to_json(),
        }
    }

    /// Returns the result in one sentence.
    pub(super) fn headline(&self) -> String {
        let best = &self.found.rows[self.found.recommended];
        let limit = self.describe_limit(best);
        let peak = Bytes(best.row.peak_bytes);
        let none = match self.found.is_interrupted {
            true => "no plan that was tried fits",
            false => "no plan fits",
        };
        let values = self.spec.commands[best.command].values.join(", ");
        let fits = |answer: &str, rest: &str| {
            let rest = format!("peak {peak}, within {limit}{rest}");
            qualify_headline(answer, &rest, &best.conditions, "the dry run")
        };
        match (self.spec.is_met(&best.row), self.found.recommended) {
            (true, _) if !values.is_empty() => {
                let plan = if best.row.plan.is_empty() { "" } else { " and a plan" };
                fits(&format!("fits with {values}{plan}"), "; the fastest that fits")
            }
            (true, 0) => fits("fits as it is", ""),
            (true, faster) if self.found.faster == Some(faster) => fits(
                &format!("a plan that fits is {} faster, by the estimate", self.gain_text(faster)),
                "; the program fits as it is, too",
            ),
            (true, _) => {
                fits("fits with a plan", &format!("; {}", describe_baseline(&self.found.rows[0])))
            }
            (false, row) if self.spec.may_be_met(&best.row) => {
                let answer = if row == 0 { "fits as it is" } else { "fits with a plan" };
                fits(answer, &format!("; {none} where libraries take the most"))
            }
            (false, _) => format!(
                "{none}: the lowest peak found is {peak}, {}; {}",
                self.describe_shortage(best),
                describe_baseline(&self.found.rows[0])
            ),
        }
    }

    /// Returns what the peak of a row may be.
    fn describe_limit(&self, found: &FoundRow) -> String {
        match self.spec.budget {
            Some(budget) => format!("the budget of {budget}"),
            None => format!("{} on {}", Bytes(found.limits[0]), self.spec.trial.run.gpus.name),
        }
    }

    /// Returns why a row does not meet the budget, behind its peak in a sentence.
    fn describe_shortage(&self, found: &FoundRow) -> String {
        let limit = self.describe_limit(found);
        let limit_bytes = self.spec.budget.map_or(found.limits[0], |budget| budget.0);
        let host_bytes = found.row.host_memory_bytes;
        match (found.row.peak_bytes.checked_sub(limit_bytes), self.spec.host_budget) {
            (Some(excess), _) if excess > 0 => format!("{} more than {limit}", Bytes(excess)),
            (_, Some(budget)) if host_bytes > budget.0 => format!(
                "within {limit}, but it needs {} of pinned host memory, more than the host budget of {budget}",
                Bytes(host_bytes)
            ),
            _ => format!("within {limit}, but no free block of the pool is large enough"),
        }
    }

    /// Returns by how much a row is faster than the program as it is.
    fn gain_text(&self, row: usize) -> String {
        let gain = 1.0 - self.found.rows[row].row.cost / self.found.rows[0].row.cost;
        format!("{:.0} %", 100.0 * gain)
    }

    /// Returns what else there is to know, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let best = &self.found.rows[self.found.recommended];
        let mut notes = Vec::new();
        let phases = describe_phases(&self.found.phases).into_iter();
        notes.extend(phases.map(|phase| format!("new in the program as it is: {phase}")));
        if self.found.cost == CostKind::RecomputedShare {
            let compared = match best.row.plan.chunks.is_empty() {
                true => "plans are compared by what is recomputed",
                false => "the largest chunks that fit are recommended",
            };
            notes.push(format!("{compared}: too much of the time of a step is unknown"));
        }
        let too_large = self.found.rows.iter().map(|found| &found.row).filter(|row| !row.fits());
        let chunks = best.row.plan.chunks.iter().filter(|_| best.row.fits());
        let settings = &best.row.plan.settings;
        notes.extend(chunks.filter_map(|chunk| chunk.describe_bound(settings, too_large.clone())));
        notes.extend(best.xla_remat.map(|remat| describe_xla_remat(remat, &best.row.plan)));
        if best.row.host_memory_bytes > 0 {
            let bytes = Bytes(best.row.host_memory_bytes);
            let wait = estimated_time(best.time.map_or(0.0, |time| time.host_wait_us));
            notes.push(format!(
                "the recommended plan keeps {bytes} in pinned host memory for each GPU, and waits {wait} of a step for transfers"
            ));
        }
        if let Some(faster) = self.found.faster.filter(|faster| *faster != self.found.recommended) {
            let gain = self.gain_text(faster);
            let moves = self.found.rows[faster].row.plan.moves().join("; ");
            notes.push(format!(
                "what fits and is fastest, by {gain} of the estimated time of a step, is {moves}; `--fastest` recommends it"
            ));
        }
        let more_bytes = best.highest_peak_bytes - best.row.peak_bytes;
        if more_bytes > best.row.peak_bytes / MIN_SCRATCH_FRACTION {
            let (highest, more) = (Bytes(best.highest_peak_bytes), Bytes(more_bytes));
            notes.push(format!(
                "on a GPU, autotuning and library routines may take up to {more} more: a peak of {highest} at most"
            ));
        }
        if let Some(kind) = best.row.plan.settings.allocator {
            notes.push(format!(
                "that it fits with `{0}` is by a model: how `{0}` places memory is not documented",
                kind.name()
            ));
        }
        let baseline_bytes = self.found.rows[0].row.peak_bytes;
        let edits = self.found.edits.iter();
        notes.extend(edits.filter_map(|it| it.edit.describe(it.peak_bytes, baseline_bytes)));
        notes.extend(self.found.left_alone.iter().map(LeftAlone::describe));
        if self.found.sites == 0
            && self.found.left_alone.is_empty()
            && self.found.failures.is_empty()
        {
            notes.push(
                "the program differentiates no function with `jax.grad` or one of its relatives, so nothing can be \
                 rematerialized"
                    .to_owned(),
            );
        }
        notes.extend(self.found.failures.iter().map(|(message, count)| {
            format!("{count} not measured: {}", message.lines().next().unwrap_or_default())
        }));
        if !self.found.is_complete {
            notes.push(format!("the search ended early, after {} dry runs", self.found.trials));
        }
        notes
    }
}

/// Says how far a plan is from the limit at which XLA's own pass begins to recompute.
fn describe_xla_remat(remat: XlaRemat, plan: &Plan) -> String {
    let pass = "XLA's own rematerialization pass";
    if plan.settings.xla_remat == Some(false) {
        format!("{pass} is off")
    } else if remat.recomputed_us > 0.0 {
        let time = estimated_time(remat.recomputed_us);
        format!("{pass} changes the recommended program: it recomputes for {time} of a step")
    } else {
        let begins = match remat.margin_bytes {
            0 => "it is at its limit already".to_owned(),
            bytes => format!("it begins when temporaries grow by about {}", Bytes(bytes)),
        };
        format!("{pass} does not change the recommended program; {begins}")
    }
}

/// Says what the program needs as it is, and on what it depends whether that fits.
fn describe_baseline(baseline: &FoundRow) -> String {
    let peak = Bytes(baseline.row.peak_bytes);
    match baseline.conditions.iter().find(|it| it.is_library_scratch()) {
        None => format!("as it is, the program needs {peak}"),
        Some(scratch) => {
            let (peak, scratch) = (format!("peak {peak}"), std::slice::from_ref(scratch));
            qualify_headline("as it is, the program fits", &peak, scratch, "the dry run")
        }
    }
}

pub(super) fn gpu_names(spec: &SearchSpec) -> Vec<String> {
    std::iter::once(&spec.trial.run.gpus)
        .chain(&spec.others)
        .map(|gpus| gpus.name.clone())
        .collect()
}
