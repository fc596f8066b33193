//! Edits of a program that a dry run measures and no plan makes: they can change what it computes, to rounding or
//! where it uses an array again. Each says what it is about, what to write, and on which condition.
//!
//! | file | edit |
//! | --- | --- |
//! | `donation` | donate arguments that are returned updated, by whose `jit` it is (`jit_form`) |
//! | `omission` | return less |
//! | `output_sharding` | divide outputs among devices as the arguments are |
//! | `batch_constraint` | keep the batch divided among devices |
//! | `cudnn_attention` | attention without its scores in memory |

mod batch_constraint;
mod cudnn_attention;
mod donation;
mod jit_form;
mod omission;
mod output_sharding;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use batch_constraint::BatchConstraint;
pub use donation::Donation;
pub use jit_form::JitForm;
pub use omission::Omission;
pub use output_sharding::OutputSharding;

use super::plan::Plan;
use crate::analysis::{MeasuredEdit, RunSummary};
use crate::bytes::Bytes;
use crate::section::phrases::file_name;

/// An edit of a program, as a plan file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProgramEdit {
    /// Donate arguments.
    Donate(Donation),
    /// Return less.
    Omit(Omission),
    /// Divide outputs among devices as the arguments are.
    ShardOutputs(OutputSharding),
    /// Keep the batch divided among devices.
    ConstrainBatch(BatchConstraint),
    /// Let `jax.nn.dot_product_attention` use cuDNN.
    CudnnAttention,
}

/// An edit that a run suggests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedEdit {
    /// The edit.
    pub edit: ProgramEdit,
    /// How many bytes it is about; what it saves is measured.
    pub bytes: u64,
    /// Where the function is called; empty if not known, and where it is of no single one.
    site: String,
    /// What to do: "donate x to `f`: …".
    change: String,
    /// On which condition; empty without any.
    condition: &'static str,
}

/// What a dry run with an edit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditOutcome {
    /// The peak.
    pub peak_bytes: u64,
    /// Whether the program fits; `None` where that depends on how much scratch memory a library takes.
    pub fits: Option<bool>,
    /// After how many training steps the run was ended; `None` where it went to its end.
    pub steps: Option<u64>,
}

impl ProgramEdit {
    /// Returns its kind, as a plan file and JSON have it.
    pub fn kind(&self) -> &'static str {
        match self {
            ProgramEdit::Donate(_) => "donate",
            ProgramEdit::Omit(_) => "omit",
            ProgramEdit::ShardOutputs(_) => "shard_outputs",
            ProgramEdit::ConstrainBatch(_) => "constrain_batch",
            ProgramEdit::CudnnAttention => "cudnn_attention",
        }
    }

    /// Describes it in a few words.
    pub fn describe(&self) -> String {
        match self {
            ProgramEdit::Donate(donation) => donation.describe(),
            ProgramEdit::Omit(omission) => omission.describe(),
            ProgramEdit::ShardOutputs(sharding) => {
                format!("divide the outputs of `{}` among devices", sharding.function)
            }
            ProgramEdit::ConstrainBatch(constraint) => {
                format!("keep the batch of `{}` divided among devices", constraint.function)
            }
            ProgramEdit::CudnnAttention => "compute attention with cuDNN".to_owned(),
        }
    }
}

impl SuggestedEdit {
    /// Returns the edits that a run suggests, those about most bytes first.
    pub fn find(summary: &RunSummary) -> Vec<Self> {
        let mut found: Vec<Self> = [
            donation::suggest(summary),
            omission::suggest(summary),
            output_sharding::suggest(summary),
            batch_constraint::suggest(summary),
            cudnn_attention::suggest(summary),
        ]
        .into_iter()
        .flatten()
        .collect();
        found.sort_by_key(|edit| Reverse(edit.bytes));
        found
    }

    /// Returns the plan that makes some edits.
    pub fn plan<'a>(edits: impl IntoIterator<Item = &'a Self>) -> Plan {
        let edits = edits.into_iter().map(|suggested| suggested.edit.clone()).collect();
        Plan { edits, ..Plan::default() }
    }

    /// Returns what a dry run with some edits came to, in words.
    pub fn measured(edits: &[&Self], result: Result<EditOutcome, String>) -> MeasuredEdit {
        let (change, condition) = match edits {
            [only] => (only.change.clone(), only.condition.to_owned()),
            [_, _] => ("both together".to_owned(), String::new()),
            _ => ("these together".to_owned(), String::new()),
        };
        let (run, failure) = match result {
            Ok(run) => (Some(run), String::new()),
            Err(failure) => (None, failure),
        };
        MeasuredEdit {
            kinds: edits.iter().map(|edit| edit.edit.kind()).collect(),
            change,
            condition,
            peak_bytes: run.map(|run| run.peak_bytes),
            fits: run.and_then(|run| run.fits),
            steps: run.and_then(|run| run.steps),
            failure,
        }
    }

    /// Says what it brings to a program with this peak, or that it fails; nothing if it brings less than a hundredth.
    pub fn describe(&self, peak_bytes: Option<u64>, baseline_bytes: u64) -> Option<String> {
        let Self { change, condition, .. } = self;
        match peak_bytes {
            Some(peak) if peak + baseline_bytes / 100 < baseline_bytes => Some(format!(
                "{change}: the peak of the program as it is would be {} instead of {}, by a dry run{}",
                Bytes(peak),
                Bytes(baseline_bytes),
                if condition.is_empty() { String::new() } else { format!("; {condition}") }
            )),
            Some(_) => None,
            None => Some(format!("{change}: the program fails in a dry run with it")),
        }
    }

    /// Returns an edit of a kind as JSON, with where the function is called and what was measured; `None` for others.
    pub fn to_json(&self, kind: &str, peak_bytes: Option<u64>) -> Option<Value> {
        if self.edit.kind() != kind {
            return None;
        }
        let mut object = json!(self.edit);
        object.as_object_mut()?.remove("kind");
        object["site"] = json!(self.site);
        object["peak_bytes"] = json!(peak_bytes);
        Some(object)
    }
}

/// Names a function with the line at which it is called.
fn function_at(function: &str, site: &str) -> String {
    match site {
        "" => format!("`{function}`"),
        site => format!("`{function}`, called at {}", file_name(site)),
    }
}

/// Returns the name of the function of `jax.jit` that a program was compiled of.
fn function_of(program: &str) -> Option<String> {
    program.strip_prefix("jit_").filter(|name| !name.is_empty()).map(str::to_owned)
}
