//! Ending a run after N steps: when the program that is executed most has run N times.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::hooks;

static COUNTS: Mutex<Option<HashMap<u32, u64>>> = Mutex::new(None);

/// Counts an execution; at the `limit` the Python side is asked to end the run, once.
pub(crate) fn count(program: u32, limit: Option<u64>) {
    let Some(limit) = limit else { return };
    let reached = {
        let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get_or_insert_default().entry(program).or_default();
        *count += 1;
        *count == limit
    };
    // The lock is gone: the other side waits for the Python interpreter.
    if reached && let Some(hooks) = hooks::get() {
        hooks.stop();
    }
}
