//! A batch that is divided among devices, of which each computes all of it.

use serde::{Deserialize, Serialize};

use super::{ProgramEdit, SuggestedEdit, function_of};
use crate::analysis::RunSummary;
use crate::section::phrases::file_name;

/// A function whose batch is to stay divided among devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchConstraint {
    /// Name of the function.
    pub function: String,
    /// The length of the batch, on all devices together.
    pub rows: u64,
}

pub(super) fn suggest(summary: &RunSummary) -> Option<SuggestedEdit> {
    let at_peak = summary.program_memory.as_ref()?;
    let whole = at_peak.whole_batch.as_ref()?;
    let program = summary.programs.get(at_peak.program)?;
    let function = function_of(&program.name)?;
    let at = match &*whole.site {
        "" => String::new(),
        site => format!(" at {}", file_name(site)),
    };
    Some(SuggestedEdit {
        bytes: whole.bytes,
        change: format!(
            "keep the batch of `{function}` divided{at}: `jax.lax.with_sharding_constraint` of the first value of all rows, \
             and of what each `jax.lax.scan` hands on"
        ),
        condition: "",
        edit: ProgramEdit::ConstrainBatch(BatchConstraint { function, rows: whole.rows }),
        site: program.site.clone(),
    })
}
