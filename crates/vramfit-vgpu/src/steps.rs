//! Ending a run after N steps: when the program that is executed most has run N times.
//!
//! Only programs that work on the run's state count: those that reuse an argument's memory, or
//! whose arguments are most of what is in use. Setting up a model runs small programs (a
//! conversion, a random draw for each layer) more often than a short run has steps.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use vramfit_core::trace::ProgramSizes;

use crate::hooks;

static COUNTS: Mutex<Option<HashMap<u32, u64>>> = Mutex::new(None);

/// Counts an execution; at the `limit` the Python side is asked to end the run, once.
///
/// `in_use_bytes` is what was in use on the first device when the call began.
pub(crate) fn count(program: u32, sizes: &ProgramSizes, in_use_bytes: u64, limit: u64) {
    if !works_on_state(sizes, in_use_bytes) {
        return;
    }
    let reached = {
        let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = counts.get_or_insert_default().entry(program).or_default();
        *calls += 1;
        *calls == limit
    };
    // The lock is gone: the other side waits for the Python interpreter.
    if reached && let Some(hooks) = hooks::get() {
        hooks.stop();
    }
}

fn works_on_state(sizes: &ProgramSizes, in_use_bytes: u64) -> bool {
    // Two thirds: the arrays of a second layer are half of what is in use when it is made.
    sizes.alias_bytes > 0 || sizes.argument_bytes >= in_use_bytes / 3 * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_works_on_the_state_and_a_draw_for_a_layer_does_not() {
        let sizes = |argument_bytes, alias_bytes| ProgramSizes {
            argument_bytes,
            alias_bytes,
            ..ProgramSizes::default()
        };
        let state = 900;
        assert!(works_on_state(&sizes(910, 900), state + 10), "donates");
        assert!(works_on_state(&sizes(910, 0), state + 10), "does not donate");
        assert!(!works_on_state(&sizes(8, 0), state), "draws from a key");
        assert!(!works_on_state(&sizes(450, 0), state), "scales one of two layers");
    }
}
