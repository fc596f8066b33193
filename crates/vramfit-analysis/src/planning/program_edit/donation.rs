//! Arguments that a compiled function could donate.

use serde::{Deserialize, Serialize};

use super::{JitForm, ProgramEdit, SuggestedEdit, function_at, function_of};
use crate::analysis::RunSummary;
use crate::program::memory::Undonated;

/// Arguments to donate to a function that `jax.jit` compiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        let function = function_of(program)?;
        let mut arguments: Vec<String> = Vec::new();
        for one in undonated.iter().filter(|one| !one.is_donated()) {
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

pub(super) fn suggest(summary: &RunSummary) -> Option<SuggestedEdit> {
    let at_peak = summary.program_memory.as_ref()?;
    let program = summary.programs.get(at_peak.program)?;
    let undonated = &at_peak.memory.undonated;
    let donation = Donation::find(&program.name, undonated)?;
    let form = JitForm::of(&at_peak.memory, &program.site);
    // It divides its arguments by itself, so that no argument of `jax.jit` is one of the function's.
    if form == JitForm::Equinox {
        return None;
    }
    let replaced = undonated.iter().filter(|one| !one.is_donated());
    Some(SuggestedEdit {
        bytes: replaced.map(|one| one.bytes).sum(),
        change: format!(
            "donate {}, returned updated, to {}: `{}`",
            donation.arguments.join(", "),
            function_at(&donation.function, &program.site),
            form.donating_call(&donation.arguments)
        ),
        condition: "the program must not use them after the call",
        edit: ProgramEdit::Donate(donation),
        site: program.site.clone(),
    })
}
