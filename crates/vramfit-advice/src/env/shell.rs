//! Lines for a POSIX shell.

use super::{Launch, notes, quote, variables};

const HEADER: &str = "\
# Memory settings for JAX. Source this file in the shell that starts the program:
#   . ./jax-env.sh && python train.py
# They apply to programs started afterwards.
";

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "# ", |variable| {
        format!("export {}={}", variable.name, quote::shell(&variable.value))
    });
    format!("{HEADER}{}\n{lines}", notes(launch, "# "))
}
