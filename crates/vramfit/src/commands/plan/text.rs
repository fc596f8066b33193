//! What `vramfit plan` prints: a table, and what else there is to know.

use std::fmt::Write as _;

use vramfit_advice::explain::batch_option;
use vramfit_analysis::Bytes;
use vramfit_analysis::planning::CostKind;
use vramfit_analysis::report::{Extent, estimated_range, estimated_time};
use vramfit_runner::dryrun::DryrunSpec;
use vramfit_runner::plan::FoundRow;

use super::results::{PlanResults, gpu_names};
use crate::command_line::shell_line;

impl PlanResults<'_> {
    /// Returns the results for people: the plans worth choosing, or all that were measured.
    pub(super) fn to_text(&self, extent: Extent<'_>) -> String {
        let best = &self.found.rows[self.found.recommended];
        let mut text = self.headline() + "\n\n";
        let names = gpu_names(self.spec);
        let header: String =
            names.iter().map(|name| format!("  {:>12}", format!("on {name}"))).collect();
        let has_batch = self.spec.commands.iter().any(|command| command.batch().is_some());
        let samples = if has_batch { "   samples/s" } else { "" };
        let time_width = if self.spec.wants_fastest { 22 } else { 14 };
        let _ = writeln!(
            text,
            "          peak  {:>time_width$}{samples}   recomputed{header}  change",
            "time of a step"
        );
        let is_shown = |index: &usize| {
            matches!(extent, Extent::Full)
                || self.found.front.contains(index)
                || [0, self.found.recommended].contains(index)
        };
        let (mut shown, others): (Vec<_>, Vec<_>) = (0..self.found.rows.len()).partition(is_shown);
        shown.sort_by_key(|index| std::cmp::Reverse(self.found.rows[*index].row.peak_bytes));
        for index in shown {
            let found = &self.found.rows[index];
            let mark = if index == self.found.recommended { '>' } else { ' ' };
            let spare: String =
                (0..names.len()).map(|gpu| format!("  {:>12}", spare_text(found, gpu))).collect();
            let moves = self.moves(found);
            let moves = if moves.is_empty() { "as it is".to_owned() } else { moves.join("; ") };
            let samples = match self.plan_row(found).samples_per_second() {
                _ if !has_batch => String::new(),
                Some(rate) => format!("  {rate:>10.0}"),
                None => format!("  {:>10}", "unknown"),
            };
            let _ = writeln!(
                text,
                "{mark} {:>12}  {:>time_width$}{samples}  {:>9.0} %{spare}  {moves}",
                Bytes(found.row.peak_bytes).to_string(),
                self.time_text(found),
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
        if self.found.rows.iter().any(|found| found.row.fits.contains(&None)) {
            text += "?: fits only where libraries take less scratch memory than they may\n";
        }
        if self.spec.wants_fastest {
            text += "the first time is a bound that no step stays below, the second the estimate\n";
        }
        if has_batch {
            text += "samples/s: the batch in the command, divided by the estimated time\n";
        }
        text.extend(self.notes().iter().map(|note| format!("{note}\n")));
        // Without a cost there is nothing to draw the peaks against.
        let has_cost = self.found.cost != CostKind::RecomputedShare
            || self.found.rows.iter().any(|found| found.recomputed_share > 0.0);
        if self.found.rows.len() > 2 && has_cost {
            text += &format!("\n{}\n", self.to_report().chart_text());
        }
        let edits = best.row.plan.edits();
        if !edits.is_empty() {
            text += "\nthe nearest edit by hand, not measured\n";
            text.extend(edits.iter().map(|edit| format!("  - {edit}\n")));
        }
        if !self.spec.is_met(&best.row) {
            text += "\nthe largest entries of the lowest peak\n";
            let line = |(name, bytes): &(String, u64)| {
                format!("  {:>12}  {name}\n", Bytes(*bytes).to_string())
            };
            text.extend(best.largest.iter().map(line));
            text += &suggest_range(&self.spec.trial);
        }
        text
    }

    /// Returns the time of a step, and how it compares with the program as it is.
    fn time_text(&self, found: &FoundRow) -> String {
        let (Some(time), Some(baseline)) = (found.time, self.found.rows[0].time) else {
            return "unknown".to_owned();
        };
        let change = 100.0 * (time.model_us / baseline.model_us - 1.0);
        match self.spec.wants_fastest {
            true => format!("{} {change:+.0} %", estimated_range(time.low_us, time.model_us)),
            false => format!("{} {change:+.0} %", estimated_time(time.model_us)),
        }
    }
}

/// Suggests to search the batch, where the command has an option that sets it.
fn suggest_range(program: &DryrunSpec) -> String {
    let command = shell_line(program.command.iter().map(AsRef::as_ref));
    batch_option(&command).map_or_else(String::new, |option| {
        let search = option.search_command(&format!("--gpu {}", program.run.gpus.label()));
        format!("a smaller batch may fit: `{search}` finds the largest\n")
    })
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
