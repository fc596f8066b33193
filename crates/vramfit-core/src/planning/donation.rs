//! Arguments that a compiled function could donate.

use serde::{Deserialize, Serialize};

use crate::program::memory::Undonated;

/// Arguments to donate to a function that `jax.jit` compiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Donation {
    /// Name of the function.
    pub function: String,
    /// Names of its arguments.
    pub arguments: Vec<String>,
}

impl Donation {
    /// Returns what a program could donate: arguments that it returns updated. `None` if it donates all of
    /// them, or where their names are not known.
    pub fn find(program: &str, undonated: &[Undonated]) -> Option<Self> {
        let function = program.strip_prefix("jit_")?.to_owned();
        let mut arguments: Vec<String> = Vec::new();
        for one in undonated.iter().filter(|one| !one.output.is_empty()) {
            let name = one.argument_name();
            if !name.is_empty() && !arguments.iter().any(|known| known == name) {
                arguments.push(name.to_owned());
            }
        }
        (!arguments.is_empty()).then_some(Donation { function, arguments })
    }

    /// Describes it in a few words.
    pub(super) fn describe(&self) -> String {
        format!("donate {} to `{}`", self.arguments.join(", "), self.function)
    }

    /// Returns the arguments as the option of `jax.jit` takes them.
    pub fn option(&self) -> String {
        let names: Vec<String> = self.arguments.iter().map(|name| format!("\"{name}\"")).collect();
        format!("donate_argnames=[{}]", names.join(", "))
    }
}
