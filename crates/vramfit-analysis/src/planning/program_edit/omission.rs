//! Outputs that a compiled function could leave out.

use serde::{Deserialize, Serialize};

use super::{ProgramEdit, SuggestedEdit, function_at, function_of};
use crate::analysis::{RunSummary, UnreadOutput};

/// Outputs that a function that `jax.jit` compiles does not have to return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omission {
    /// Name of the function.
    pub function: String,
    /// Pytree paths of its outputs, such as `result[1]['logits']`.
    pub outputs: Vec<String>,
}

impl Omission {
    /// Returns what a program could leave out; `None` if its outputs are all read, or where it is not a
    /// function of `jax.jit`.
    pub fn find(program: &str, unread: &[UnreadOutput]) -> Option<Self> {
        let function = function_of(program)?;
        let outputs: Vec<String> = unread.iter().map(|output| output.path.clone()).collect();
        (!outputs.is_empty()).then_some(Omission { function, outputs })
    }

    /// Describes it in a few words.
    pub(super) fn describe(&self) -> String {
        format!("leave {} out of what `{}` returns", self.outputs.join(", "), self.function)
    }
}

pub(super) fn suggest(summary: &RunSummary) -> Option<SuggestedEdit> {
    let at_peak = summary.program_memory.as_ref()?;
    let program = summary.programs.get(at_peak.program)?;
    let omission = Omission::find(&program.name, &at_peak.unread_outputs)?;
    let outputs = omission.outputs.join(", ");
    Some(SuggestedEdit {
        bytes: at_peak.unread_outputs.iter().map(|output| output.bytes).sum(),
        change: format!(
            "return without {outputs}, which nothing has read in these steps, from {}",
            function_at(&omission.function, &program.site)
        ),
        condition: "later steps must not read it, either",
        edit: ProgramEdit::Omit(omission),
        site: program.site.clone(),
    })
}
