//! Lines for a shell.

use super::{Start, notes, quote, variables};

const HEADER: &str = "\
# Settings for JAX's memory. Read them into the shell that starts the program:
#   . ./jax-env.sh && python train.py
# They count for programs started after this.
";

pub(super) fn write(start: &Start) -> String {
    let lines = variables(start, "# ", |variable| {
        format!("export {}={}", variable.name, quote::shell(&variable.value))
    });
    format!("{HEADER}{}\n{lines}", notes(start, "# "))
}
