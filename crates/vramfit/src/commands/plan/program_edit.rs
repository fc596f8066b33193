//! What an edit of the program brings that no plan makes: to donate arguments, to return less. Advice only: whether
//! the program uses an array after a call is known only of the steps that were measured.

use serde_json::{Value, json};
use vramfit_core::Bytes;
use vramfit_core::analysis::RunSummary;
use vramfit_core::planning::{Donation, Omission, Plan};

/// An edit of the function with the peak.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProgramEdit {
    change: Change,
    /// Where the function is called; empty if not known.
    site: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Donate(Donation),
    Omit(Omission),
}

/// An edit, and what a dry run with it has measured.
pub(super) struct MeasuredEdit {
    pub(super) edit: ProgramEdit,
    /// Peak with it; `None` where the program did not run to its end.
    pub(super) peak_bytes: Option<u64>,
}

impl ProgramEdit {
    /// Returns the edits that a run suggests.
    pub(super) fn find(summary: &RunSummary) -> Vec<Self> {
        let at_peak = summary.program_memory.as_ref();
        let found = at_peak.and_then(|it| Some((it, summary.programs.get(it.program)?)));
        let Some((at_peak, program)) = found else {
            return Vec::new();
        };
        let donation = Donation::find(&program.name, &at_peak.memory.undonated);
        let omission = Omission::find(&program.name, &at_peak.unread_outputs);
        let changes = donation.map(Change::Donate).into_iter();
        changes
            .chain(omission.map(Change::Omit))
            .map(|change| ProgramEdit { change, site: program.site.clone() })
            .collect()
    }

    /// Returns the plan that makes the edit.
    pub(super) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        match &self.change {
            Change::Donate(donation) => plan.donations.push(donation.clone()),
            Change::Omit(omission) => plan.omissions.push(omission.clone()),
        }
        plan
    }
}

impl MeasuredEdit {
    /// Says what it brings to a program with this peak; nothing if that is less than a hundredth of it.
    pub(super) fn describe(&self, baseline_bytes: u64) -> Option<String> {
        let site = match &*self.edit.site {
            "" => String::new(),
            site => format!(", called at {site},"),
        };
        let (fact, edit, condition) = match &self.edit.change {
            Change::Donate(donation) => (
                format!(
                    "`{}`{site} returns {} updated and does not donate them",
                    donation.function,
                    donation.arguments.join(", ")
                ),
                format!("with `jax.jit(..., {})`", donation.option()),
                "it must not use them after the call",
            ),
            Change::Omit(omission) => (
                format!(
                    "`{}`{site} returns {}, which nothing has read in these steps",
                    omission.function,
                    omission.outputs.join(", ")
                ),
                "without these outputs".to_owned(),
                "later steps must not read them, either",
            ),
        };
        match self.peak_bytes {
            Some(peak) if peak + baseline_bytes / 100 < baseline_bytes => Some(format!(
                "{fact}: {edit} the peak of the program as it is would be {} instead of {}, by a dry run; {condition}",
                Bytes(peak),
                Bytes(baseline_bytes)
            )),
            Some(_) => None,
            None => Some(format!("{fact}: {edit} the program fails in a dry run")),
        }
    }

    /// Returns the donation as the option of `jax.jit`, and the peak with it, if it is one and was measured.
    pub(super) fn donation(&self) -> Option<(String, u64)> {
        match &self.edit.change {
            Change::Donate(donation) => Some((donation.option(), self.peak_bytes?)),
            Change::Omit(_) => None,
        }
    }

    pub(super) fn donation_json(&self) -> Option<Value> {
        let Change::Donate(donation) = &self.edit.change else {
            return None;
        };
        Some(json!({
            "function": donation.function,
            "arguments": donation.arguments,
            "site": self.edit.site,
            "peak_bytes": self.peak_bytes,
        }))
    }

    /// Returns the outputs to leave out as JSON, if it is about them.
    pub(super) fn omission_json(&self) -> Option<Value> {
        let Change::Omit(omission) = &self.edit.change else {
            return None;
        };
        Some(json!({
            "function": omission.function,
            "outputs": omission.outputs,
            "site": self.edit.site,
            "peak_bytes": self.peak_bytes,
        }))
    }
}
