//! The settings of the run, as the Python process around us tells them. They may come before there is a
//! machine with a trace, and again whenever the program changes them.

use std::sync::{Mutex, PoisonError};

use vramfit_core::trace::RunEnvironment;

use crate::device::machine;

/// The latest that were told.
static LATEST: Mutex<Option<RunEnvironment>> = Mutex::new(None);

/// Notes the settings, for the trace.
pub fn record(settings: RunEnvironment) {
    // The lock may be held by a thread that was not copied.
    if machine::is_forked() {
        return;
    }
    if let Some(machine) = machine::get() {
        machine.session().record_settings(&settings);
    }
    *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
}

/// Returns what was told before there was a machine.
pub(crate) fn latest() -> Option<RunEnvironment> {
    LATEST
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
