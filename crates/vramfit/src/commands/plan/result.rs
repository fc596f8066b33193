//! What `vramfit plan` prints: a table, JSON, and the plan file.

use std::ffi::OsString;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use vramfit_analysis::planning::{CostKind, LeftAlone, Plan, PlanSource};
use vramfit_analysis::report::{
    AlternativeKind, Extent, PlanRow, PlanSummary, Report, conditions_json, describe_phases,
    qualify_headline,
};
use vramfit_analysis::{Bytes, Result};

use super::search::{Found, FoundRow, SearchSpec};
use super::trial::XlaRemat;
use crate::command_line::shell_line;

/// What library routines may take beside one in this many bytes of the peak is said.
const MIN_SCRATCH_FRACTION: u64 = 100;

impl Found {
    /// Returns `true` if a row meets the budget; unknown where the user ended the search before one did, or where that
    /// depends on how much scratch memory a library takes.
    pub(super) fn answer(&self, spec: &SearchSpec) -> Option<bool> {
        let is_met = self.fits(spec);
        let is_open = self.is_interrupted || self.may_fit(spec);
        Some(is_met).filter(|met| *met || !is_open)
    }

    /// Returns `true` if the recommended plan meets the budget.
    pub(super) fn fits(&self, spec: &SearchSpec) -> bool {
        spec.is_met(&self.rows[self.recommended].row)
    }

    /// Returns `true` if the recommended plan meets the budget where libraries take little enough scratch memory.
    pub(super) fn may_fit(&self, spec: &SearchSpec) -> bool {
        spec.may_be_met(&self.rows[self.recommended].row)
    }

    /// Returns the text of the recommended plan's file.
    ///
    /// # Errors
    /// Those of [`vramfit_analysis::planning::Plan::to_toml`].
    pub(super) fn plan_file(&self, spec: &SearchSpec) -> Result<String> {
        self.plan_text(&self.rows[self.recommended], spec)
    }

    fn plan_text(&self, found: &FoundRow, spec: &SearchSpec) -> Result<String> {
        let command = &spec.commands[found.command].words;
        found.row.plan.to_toml(&PlanSource {
            vramfit: env!("CARGO_PKG_VERSION").to_owned(),
            jax: self.jax.clone(),
            gpu: spec.trial.run.gpus.name.clone(),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            peak_bytes: found.row.peak_bytes,
        })
    }

    /// Returns the results as JSON.
    pub(super) fn to_json(&self, spec: &SearchSpec) -> Value {
        let row = |found: &FoundRow| self.row_json(found, spec);
        json!({
            "schema": 1,
            "gpus": gpu_names(spec),
            "budget_bytes": spec.budget.map(|budget| budget.0),
            "meets_budget": spec.is_met(&self.rows[self.recommended].row),
            "baseline": row(&self.rows[0]),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "by_time": self.cost != CostKind::RecomputedShare,
            "front": self.front,
            "recommended": row(&self.rows[self.recommended]),
            "faster": self.faster.map(|faster| row(&self.rows[faster])),
            "donation": self.edits.iter().find_map(|it| it.edit.to_json("donate", it.peak_bytes)),
            "omission": self.edits.iter().find_map(|it| it.edit.to_json("omit", it.peak_bytes)),
            "phases": self.phases,
            "trials": self.trials,
            "complete": self.is_complete,
            "left_alone": self.left_alone,
            "failures": self.failures.iter().map(|(text, count)| json!({"message": text, "count": count})).collect::<Vec<_>>(),
        })
    }

    fn row_json(&self, found: &FoundRow, spec: &SearchSpec) -> Value {
        let by_gpu = |values: Vec<Value>| -> Map<String, Value> {
            gpu_names(spec).into_iter().zip(values).collect()
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
            "samples_per_second": self.plan_row(found, spec).samples_per_second(),
            "host_memory_bytes": found.row.host_memory_bytes,
            "xla_remat": found.xla_remat.map(|remat| json!({
                "recomputed_us": remat.recomputed_us,
                "margin_bytes": remat.margin_bytes,
            })),
            "moves": self.moves(found, spec),
            "edits": found.row.plan.edits(),
            "plan": self.plan_text(found, spec).ok(),
            "largest": found.largest.iter().map(|(name, bytes)| json!({"name": name, "bytes": bytes})).collect::<Vec<_>>(),
            "conditions": conditions_json(&found.conditions),
            "fits": by_gpu(fits.collect()),
            "spare_bytes": by_gpu(spare.collect()),
        })
    }

    fn moves(&self, found: &FoundRow, spec: &SearchSpec) -> Vec<String> {
        let mut moves = spec.commands[found.command].values.clone();
        moves.extend(found.row.plan.moves());
        moves
    }

    /// Returns the time of a step, and how it compares with the program as it is.
    fn time_text(&self, found: &FoundRow, spec: &SearchSpec) -> String {
        let (Some(time), Some(baseline)) = (found.time, self.rows[0].time) else {
            return "unknown".to_owned();
        };
        let milliseconds = time.model_us / 1e3;
        let change = 100.0 * (time.model_us / baseline.model_us - 1.0);
        match spec.wants_fastest {
            true => format!("{:.1} to {milliseconds:.1} ms {change:+.0} %", time.low_us / 1e3),
            false => format!("{milliseconds:.1} ms {change:+.0} %"),
        }
    }

    /// Returns the results as a page shows them.
    pub(super) fn to_report(&self, spec: &SearchSpec) -> Report {
        Report::from_plan(self.summary(spec))
    }

    fn plan_row(&self, found: &FoundRow, spec: &SearchSpec) -> PlanRow {
        PlanRow {
            moves: self.moves(found, spec),
            peak_bytes: found.row.peak_bytes,
            time_us: found.time.map(|time| (time.low_us, time.model_us)),
            batch: spec.commands[found.command].batch(),
            recomputed_share: found.recomputed_share,
            host_memory_bytes: found.row.host_memory_bytes,
            spare_bytes: (0..=spec.others.len())
                .map(|gpu| {
                    let (limit, peak) = (found.limits.get(gpu)?, found.peaks.get(gpu)?);
                    Some(*limit as i64 - *peak as i64)
                })
                .collect(),
            kind: AlternativeKind::Dominated,
        }
    }

    fn summary(&self, spec: &SearchSpec) -> PlanSummary {
        let best = &self.rows[self.recommended];
        let row = |(index, found): (usize, &FoundRow)| PlanRow {
            kind: match index {
                _ if index == self.recommended => AlternativeKind::Recommended,
                0 => AlternativeKind::Unchanged,
                _ if self.front.contains(&index) => AlternativeKind::ParetoOptimal,
                _ => AlternativeKind::Dominated,
            },
            ..self.plan_row(found, spec)
        };
        let command = spec.trial.command.iter().map(AsRef::as_ref);
        PlanSummary {
            headline: self.headline(spec),
            success: self.answer(spec),
            rows: self.rows.iter().enumerate().map(row).collect(),
            cost: self.cost,
            limit_bytes: spec.budget.map_or(best.limits[0], |budget| budget.0),
            gpus: gpu_names(spec),
            notes: self.notes(),
            edits: best.row.plan.edits(),
            largest: best.largest.clone(),
            metadata: vec![
                ("command", shell_line(command)),
                ("GPU", gpu_names(spec).join(", ")),
                ("jax", self.jax.clone()),
                ("dry runs", self.trials.to_string()),
            ],
            json: self.to_json(spec),
        }
    }

    /// Returns the result in one sentence.
    pub(super) fn headline(&self, spec: &SearchSpec) -> String {
        let best = &self.rows[self.recommended];
        let limit = spec.describe_limit(best);
        let peak = Bytes(best.row.peak_bytes);
        let none = match self.is_interrupted {
            true => "no plan that was tried fits",
            false => "no plan fits",
        };
        let values = spec.commands[best.command].values.join(", ");
        let fits = |answer: &str, rest: &str| {
            let rest = format!("peak {peak}, within {limit}{rest}");
            qualify_headline(answer, &rest, &best.conditions, "the dry run")
        };
        match (spec.is_met(&best.row), self.recommended) {
            (true, _) if !values.is_empty() => {
                let plan = if best.row.plan.is_empty() { "" } else { " and a plan" };
                fits(&format!("fits with {values}{plan}"), "; the fastest that fits")
            }
            (true, 0) => fits("fits as it is", ""),
            (true, faster) if self.faster == Some(faster) => fits(
                &format!("a plan that fits is {} faster, by the estimate", self.gain_text(faster)),
                "; the program fits as it is, too",
            ),
            (true, _) => {
                fits("fits with a plan", &format!("; {}", describe_baseline(&self.rows[0])))
            }
            (false, row) if spec.may_be_met(&best.row) => {
                let answer = if row == 0 { "fits as it is" } else { "fits with a plan" };
                fits(answer, &format!("; {none} where libraries take the most"))
            }
            (false, _) => format!(
                "{none}: the lowest peak found is {peak}, {}; {}",
                spec.describe_shortage(best),
                describe_baseline(&self.rows[0])
            ),
        }
    }

    /// Returns by how much a row is faster than the program as it is.
    fn gain_text(&self, row: usize) -> String {
        let gain = 1.0 - self.rows[row].row.cost / self.rows[0].row.cost;
        format!("{:.0} %", 100.0 * gain)
    }

    /// Returns what else there is to know, a sentence each.
    fn notes(&self) -> Vec<String> {
        let best = &self.rows[self.recommended];
        let mut notes = Vec::new();
        let phases = describe_phases(&self.phases).into_iter();
        notes.extend(phases.map(|phase| format!("new in the program as it is: {phase}")));
        if self.cost == CostKind::RecomputedShare {
            let compared = match best.row.plan.chunks.is_empty() {
                true => "plans are compared by what is recomputed",
                false => "the largest chunks that fit are recommended",
            };
            notes.push(format!("{compared}: too much of the time of a step is unknown"));
        }
        let too_large = self.rows.iter().map(|found| &found.row).filter(|row| !row.fits());
        let chunks = best.row.plan.chunks.iter().filter(|_| best.row.fits());
        let settings = &best.row.plan.settings;
        notes.extend(chunks.filter_map(|chunk| chunk.describe_bound(settings, too_large.clone())));
        notes.extend(best.xla_remat.map(|remat| describe_xla_remat(remat, &best.row.plan)));
        if best.row.host_memory_bytes > 0 {
            let bytes = Bytes(best.row.host_memory_bytes);
            let wait = best.time.map_or(0.0, |time| time.host_wait_us / 1e3);
            notes.push(format!(
                "the recommended plan keeps {bytes} in pinned host memory for each GPU, and waits {wait:.1} ms of a step for transfers"
            ));
        }
        if let Some(faster) = self.faster.filter(|faster| *faster != self.recommended) {
            let gain = self.gain_text(faster);
            let moves = self.rows[faster].row.plan.moves().join("; ");
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
        let baseline_bytes = self.rows[0].row.peak_bytes;
        let edits = self.edits.iter();
        notes.extend(edits.filter_map(|it| it.edit.describe(it.peak_bytes, baseline_bytes)));
        notes.extend(self.left_alone.iter().map(LeftAlone::describe));
        if self.sites == 0 && self.left_alone.is_empty() && self.failures.is_empty() {
            notes.push(
                "the program differentiates no function with `jax.grad` or one of its relatives, so nothing can be \
                 rematerialized"
                    .to_owned(),
            );
        }
        notes.extend(self.failures.iter().map(|(message, count)| {
            format!("{count} not measured: {}", message.lines().next().unwrap_or_default())
        }));
        if !self.is_complete {
            notes.push(format!("the search ended early, after {} dry runs", self.trials));
        }
        notes
    }

    /// Returns the results for people: the plans worth choosing, or all that were measured.
    pub(super) fn to_text(&self, spec: &SearchSpec, extent: Extent<'_>) -> String {
        let best = &self.rows[self.recommended];
        let mut text = self.headline(spec) + "\n\n";
        let names = gpu_names(spec);
        let header: String =
            names.iter().map(|name| format!("  {:>12}", format!("on {name}"))).collect();
        let has_batch = spec.commands.iter().any(|command| command.batch().is_some());
        let samples = if has_batch { "   samples/s" } else { "" };
        let time_width = if spec.wants_fastest { 22 } else { 14 };
        let _ = writeln!(
            text,
            "          peak  {:>time_width$}{samples}   recomputed{header}  change",
            "time of a step"
        );
        let is_shown = |index: &usize| {
            matches!(extent, Extent::Full)
                || self.front.contains(index)
                || [0, self.recommended].contains(index)
        };
        let (mut shown, others): (Vec<_>, Vec<_>) = (0..self.rows.len()).partition(is_shown);
        shown.sort_by_key(|index| std::cmp::Reverse(self.rows[*index].row.peak_bytes));
        for index in shown {
            let found = &self.rows[index];
            let mark = if index == self.recommended { '>' } else { ' ' };
            let spare: String =
                (0..names.len()).map(|gpu| format!("  {:>12}", spare_text(found, gpu))).collect();
            let moves = self.moves(found, spec);
            let moves = if moves.is_empty() { "as it is".to_owned() } else { moves.join("; ") };
            let samples = match self.plan_row(found, spec).samples_per_second() {
                _ if !has_batch => String::new(),
                Some(rate) => format!("  {rate:>10.0}"),
                None => format!("  {:>10}", "unknown"),
            };
            let _ = writeln!(
                text,
                "{mark} {:>12}  {:>time_width$}{samples}  {:>9.0} %{spare}  {moves}",
                Bytes(found.row.peak_bytes).to_string(),
                self.time_text(found, spec),
                100.0 * found.recomputed_share,
            );
        }
        if let (Extent::Brief { option }, 1..) = (extent, others.len()) {
            let count = others.len();
            let _ = writeln!(
                text,
                "{count} more with `{option}`, each no better than one of these in peak and time"
            );
        }
        let _ = writeln!(
            text,
            "\npeak: of the fullest GPU, by a dry run with the change applied; what the pool has left is under each GPU\n\
             time of a step: estimated, not measured, and relative to the program as it is\n\
             recomputed: floating-point operations of the differentiated functions that run twice"
        );
        if self.rows.iter().any(|found| found.row.fits.contains(&None)) {
            text += "?: fits only where libraries take less scratch memory than they may\n";
        }
        if spec.wants_fastest {
            text += "the first time is a bound that no step stays below, the second the estimate\n";
        }
        if has_batch {
            text += "samples/s: the batch in the command, divided by the estimated time\n";
        }
        text.extend(self.notes().iter().map(|note| format!("{note}\n")));
        // Without a cost there is nothing to draw the peaks against.
        let has_cost = self.cost != CostKind::RecomputedShare
            || self.rows.iter().any(|found| found.recomputed_share > 0.0);
        if self.rows.len() > 2 && has_cost {
            text += &format!("\n{}\n", self.to_report(spec).chart_text());
        }
        let edits = best.row.plan.edits();
        if !edits.is_empty() {
            text += "\nthe nearest edit by hand, not measured\n";
            text.extend(edits.iter().map(|edit| format!("  - {edit}\n")));
        }
        if !spec.is_met(&best.row) {
            text += "\nthe largest entries of the lowest peak\n";
            let line = |(name, bytes): &(String, u64)| {
                format!("  {:>12}  {name}\n", Bytes(*bytes).to_string())
            };
            text.extend(best.largest.iter().map(line));
            text += &suggest_range(&spec.trial.command);
        }
        text
    }
}

/// Suggests to search the batch, where the command has an option that sets it.
fn suggest_range(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let option = words.windows(2).find(|pair| {
        let is_batch = pair[0].starts_with("--") && pair[0].contains("batch");
        is_batch && pair[1].parse::<u64>().is_ok()
    });
    option.map_or_else(String::new, |pair| {
        format!(
            "a smaller batch may fit: `vramfit plan --vary batch=1..{} ... {} {{batch}}` finds the largest\n",
            pair[1], pair[0]
        )
    })
}

/// Says how far a plan is from the limit at which XLA's own pass begins to recompute.
fn describe_xla_remat(remat: XlaRemat, plan: &Plan) -> String {
    let pass = "XLA's own rematerialization pass";
    if plan.settings.xla_remat == Some(false) {
        format!("{pass} is off")
    } else if remat.recomputed_us > 0.0 {
        let milliseconds = remat.recomputed_us / 1e3;
        format!(
            "{pass} changes the recommended program: it recomputes for {milliseconds:.1} ms of a step"
        )
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

/// Returns what is left of a GPU's pool, or what is missing.
fn spare_text(found: &FoundRow, gpu: usize) -> String {
    let (Some(limit), Some(peak), Some(fits)) =
        (found.limits.get(gpu), found.peaks.get(gpu), found.row.fits.get(gpu))
    else {
        return "not measured".to_owned();
    };
    match (limit.checked_sub(*peak), fits) {
        (Some(spare), Some(true)) => format!("+{}", Bytes(spare)),
        (Some(spare), None) => format!("+{} ?", Bytes(spare)),
        (Some(_), Some(false)) => "fragmented".to_owned(),
        (None, _) => format!("-{}", Bytes(peak - limit)),
    }
}

fn gpu_names(spec: &SearchSpec) -> Vec<String> {
    std::iter::once(&spec.trial.run.gpus)
        .chain(&spec.others)
        .map(|gpus| gpus.name.clone())
        .collect()
}
