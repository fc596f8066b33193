//! Raising `SystemExit` in the main thread of Python, from any thread.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;

/// Whether the exception is queued for the main thread, and whether it was raised there.
static REQUESTED: AtomicBool = AtomicBool::new(false);
static EXIT_RAISED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How deeply this thread is nested in Python functions that the plugin has called.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether the exception was to be raised inside one of them.
    static WAITING: Cell<bool> = const { Cell::new(false) };
}

/// Asks the main thread to end the program as by `sys.exit(0)`, and returns whether the exception was raised.
/// It may be called again: the exception is raised once.
#[pyfunction]
pub(crate) fn ask_main_thread_to_exit() -> bool {
    if EXIT_RAISED.load(Ordering::Acquire) {
        return true;
    }
    // The queue may be full; the next call tries again.
    if !REQUESTED.swap(true, Ordering::AcqRel) && !queue_exit() {
        REQUESTED.store(false, Ordering::Release);
    }
    vramfit_vgpu::wake_main_thread();
    false
}

/// Calls Python from inside the plugin. The exception is not raised inside the call, where it would be
/// an error of the plugin, but after it, in the program.
pub(crate) fn call_python<T>(call: impl for<'py> FnOnce(Python<'py>) -> T) -> T {
    Python::attach(|py| {
        DEPTH.set(DEPTH.get() + 1);
        let result = call(py);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 && WAITING.take() {
            REQUESTED.store(queue_exit(), Ordering::Release);
        }
        result
    })
}

/// Queues the exception, to be raised in the main thread between two bytecodes.
fn queue_exit() -> bool {
    #[allow(unsafe_code, reason = "there is no safe way to ask the main thread to stop")]
    // SAFETY: the callback has the type Python asks for, and needs no argument.
    let queued = unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise_exit), ptr::null_mut()) };
    queued == 0
}

extern "C" fn raise_exit(_: *mut c_void) -> c_int {
    if DEPTH.get() > 0 {
        WAITING.set(true);
        return 0;
    }
    EXIT_RAISED.store(true, Ordering::Release);
    Python::attach(|py| {
        note_array_holders(py);
        PySystemExit::new_err(0).restore(py);
    });
    -1
}

/// Has what holds arrays looked for as long as the functions of the program have not ended. The run ends in any case.
fn note_array_holders(py: Python<'_>) {
    if let Ok(module) = py.import("vramfit._inprogram._array_holders") {
        let _ = module.call_method0("find_at_last_step");
    }
}
