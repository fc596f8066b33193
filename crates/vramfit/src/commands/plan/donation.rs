//! What it brings if a program donates what it could. Advice only: whether the program uses the arguments
//! after a call is known only of the steps that were measured.

use serde_json::{Value, json};
use vramfit_core::Bytes;
use vramfit_core::search::{Donation, Plan};

use super::trial::TrialSpec;
use crate::context::Context;
use crate::output::Output;

/// Arguments that a program could donate, and what a dry run with the donation has measured.
pub(super) struct MeasuredDonation {
    donation: Donation,
    /// Where the function is called; empty if not known.
    site: String,
    /// Peak with the donation; `None` where the program did not run to its end with it.
    peak_bytes: Option<u64>,
}

impl MeasuredDonation {
    /// Measures it.
    pub(super) fn measure(
        donation: Donation,
        site: String,
        trial: &TrialSpec,
        context: &Context,
        output: &mut Output,
    ) -> Self {
        let plan = Plan {
            donations: vec![donation.clone()],
            ..Plan::default()
        };
        let measured = trial.measure(&plan, context, &output.quiet());
        if let Err(error) = &measured {
            output.verbose(&error.to_string());
        }
        MeasuredDonation {
            donation,
            site,
            peak_bytes: measured.ok().map(|measured| measured.peak_bytes),
        }
    }

    /// Says what it brings to a program with this peak; nothing if that is nothing.
    pub(super) fn describe(&self, baseline_bytes: u64) -> Option<String> {
        let Donation {
            function,
            arguments,
        } = &self.donation;
        let option = self.donation.option();
        let effect = match self.peak_bytes {
            Some(peak) if peak < baseline_bytes => format!(
                "with `jax.jit(..., {option})` the peak of the program as it is would be {} instead of {}, \
                 by a dry run; it must not use them after the call",
                Bytes(peak),
                Bytes(baseline_bytes)
            ),
            Some(_) => return None,
            None => format!("with `jax.jit(..., {option})` the program fails in a dry run"),
        };
        let site = match &*self.site {
            "" => String::new(),
            site => format!(", called at {site},"),
        };
        let names = arguments.join(", ");
        Some(format!(
            "`{function}`{site} returns {names} updated and does not donate them: {effect}"
        ))
    }

    /// Returns it as JSON.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "function": self.donation.function,
            "arguments": self.donation.arguments,
            "site": self.site,
            "peak_bytes": self.peak_bytes,
        })
    }
}
