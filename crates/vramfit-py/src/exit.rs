//! Raising `SystemExit` in the main thread of Python, from any thread.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;

/// Whether the exception is on its way to the main thread, and whether it has come up there.
static ASKED: AtomicBool = AtomicBool::new(false);
static RAISED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How deep this thread is in Python code of ours that the plugin has called.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Whether the exception wanted to come up there.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Asks the main thread to end the program as by `sys.exit(0)`, and says whether it has begun to.
/// Asking again does no harm: the exception comes up once.
#[pyfunction]
pub(crate) fn ask_main_thread_to_exit() -> bool {
    if RAISED.load(Ordering::Acquire) {
        return true;
    }
    // The queue may be full; the next call tries again.
    if !ASKED.swap(true, Ordering::AcqRel) && !queue() {
        ASKED.store(false, Ordering::Release);
    }
    vramfit_vgpu::wake_main_thread();
    false
}

/// Calls Python from inside the plugin. The exception does not come up in there, where it would be
/// an error of ours, but behind it, in the program.
pub(crate) fn ask_python<T>(call: impl for<'py> FnOnce(Python<'py>) -> T) -> T {
    Python::attach(|py| {
        DEPTH.set(DEPTH.get() + 1);
        let result = call(py);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 && WAITS.take() {
            ASKED.store(queue(), Ordering::Release);
        }
        result
    })
}

/// Has the exception raised in the main thread between two bytecodes.
fn queue() -> bool {
    #[allow(
        unsafe_code,
        reason = "there is no safe way to ask the main thread to stop"
    )]
    // SAFETY: the callback has the type Python asks for, and needs no argument.
    let queued = unsafe { pyo3::ffi::Py_AddPendingCall(Some(raise), ptr::null_mut()) };
    queued == 0
}

extern "C" fn raise(_: *mut c_void) -> c_int {
    if DEPTH.get() > 0 {
        WAITS.set(true);
        return 0;
    }
    RAISED.store(true, Ordering::Release);
    Python::attach(|py| PySystemExit::new_err(0).restore(py));
    -1
}
