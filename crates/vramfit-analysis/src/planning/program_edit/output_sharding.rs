//! Outputs on one device, of a function whose arguments are divided among several.

use serde::{Deserialize, Serialize};

use super::{ProgramEdit, SuggestedEdit, function_at, function_of};
use crate::analysis::{ProgramSummary, RunSummary};

/// Outputs of less than one in this many of the bytes that are needed are left out.
const MIN_FRACTION: u64 = 20;

/// A function whose outputs are to be divided among devices, each like the argument of its shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSharding {
    /// Name of the function.
    pub function: String,
}

/// JAX drops arguments that a function does not compute with, such as the parameters that `optimizer.init` makes zeros
/// like; without any, the program is one for the first device.
pub(super) fn suggest(summary: &RunSummary) -> Option<SuggestedEdit> {
    let used = summary.devices.iter().filter(|device| device.peak_bytes > 0).count();
    let is_on_one = |program: &&ProgramSummary| {
        program.devices == 1
            && program.sizes.output_bytes >= (summary.needed_bytes() / MIN_FRACTION).max(1)
            && program.sizes.argument_bytes < program.sizes.output_bytes
    };
    let on_one = summary.programs.iter().filter(is_on_one);
    let program = on_one.max_by_key(|program| program.sizes.output_bytes)?;
    let function = function_of(&program.name).filter(|_| used > 1)?;
    Some(SuggestedEdit {
        bytes: program.sizes.output_bytes,
        change: format!(
            "divide among GPUs what {} makes on one: `jax.jit(..., out_shardings=...)`, each output like the argument of \
             its shape",
            function_at(&function, &program.site)
        ),
        condition: "",
        edit: ProgramEdit::ShardOutputs(OutputSharding { function }),
        site: program.site.clone(),
    })
}
