//! The settings of the run, which Python passes to the plugin. They may arrive before there is a
//! machine with a trace, and again whenever the program changes them.

use std::sync::Mutex;

use vramfit_model::trace::RunEnvironment;

use crate::device::machine;
use crate::lock;

/// The latest settings.
static LATEST: Mutex<Option<RunEnvironment>> = Mutex::new(None);

/// Records the settings in the trace.
pub fn record(settings: RunEnvironment) {
    // The lock may be held by a thread that the fork has not copied.
    if machine::is_forked() {
        return;
    }
    if let Some(machine) = machine::get() {
        let mut session = machine.session();
        session.write(|trace| trace.settings(&settings));
        session.flush_at_end();
    }
    *lock(&LATEST) = Some(settings);
}

/// Returns the latest settings.
pub(crate) fn latest() -> Option<RunEnvironment> {
    lock(&LATEST).clone()
}
