//! Outputs that a compiled function could leave out.

use serde::{Deserialize, Serialize};

use crate::analysis::UnreadOutput;

/// Outputs that a function that `jax.jit` compiles does not have to return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        let function = program.strip_prefix("jit_")?.to_owned();
        let outputs: Vec<String> = unread.iter().map(|output| output.path.clone()).collect();
        (!outputs.is_empty()).then_some(Omission { function, outputs })
    }

    /// Describes it in a few words.
    pub(super) fn describe(&self) -> String {
        format!("leave {} out of what `{}` returns", self.outputs.join(", "), self.function)
    }
}
