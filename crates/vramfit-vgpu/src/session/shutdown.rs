//! Ends a run whose steps are done, as far as threads are concerned: wakes the main thread and parks the others.
//! `step_detector` decides when a run is finished, Python how it ends (`_shutdown.py`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The only thread that may still execute programs.
static ACTIVE_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Number of executions that are running.
static RUNNING_EXECUTIONS: AtomicU32 = AtomicU32::new(0);

/// Steps that threads other than the main one have executed after the run was finished.
static EXTRA_STEPS: AtomicU64 = AtomicU64::new(0);

/// The delay of those steps. The main thread may still be cleaning up, and needs the processor.
const STEP_DELAY: Duration = Duration::from_millis(50);

extern "C" fn no_op_handler(_: libc::c_int) {}

/// Interrupts a wait of the main thread, so that Python runs its pending calls.
///
/// While it waits for a lock (a thread to join, a queue, an event), Python runs pending calls only
/// when a signal arrives. The signal is one that is rarely used; if the program has a handler for it,
/// none is sent.
pub fn wake_main_thread() {
    // SAFETY: the structs are plain data and filled before they are read; the handler does nothing,
    // so it may run at any time. The main thread of a process has the process's number.
    unsafe {
        let mut handler: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGURG, std::ptr::null(), &raw mut handler) != 0 {
            return;
        }
        let own_handler = no_op_handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        if matches!(handler.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            // Without SA_RESTART: a wait that is restarted by the kernel is not interrupted.
            handler.sa_flags = 0;
            handler.sa_sigaction = own_handler;
            libc::sigaction(libc::SIGURG, &raw const handler, std::ptr::null_mut());
        }
        if handler.sa_sigaction == own_handler {
            let process = libc::getpid();
            libc::syscall(libc::SYS_tgkill, process, process, libc::SIGURG);
        }
    }
}

/// Parks all threads but the calling one where they start or finish an execution, until the process has
/// ended. Only the first call counts.
///
/// Returns when no execution is running, or after a second. To be called without the GIL: a thread that
/// returns from an execution needs it to get to the next one.
pub fn park_other_threads() {
    let _ = ACTIVE_THREAD.set(thread::current().id());
    for _ in 0..20 {
        thread::sleep(STEP_DELAY);
        if RUNNING_EXECUTIONS.load(Ordering::Acquire) == 0 {
            break;
        }
    }
}

/// Returns how many steps threads other than the main one have executed after the run was finished.
pub fn extra_steps() -> u64 {
    EXTRA_STEPS.load(Ordering::Relaxed)
}

/// Returns whether this is the process's first thread: Python's main thread.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: both take no argument and cannot fail.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Counts an extra step of a thread other than the main one, and slows it down.
pub(crate) fn throttle_extra_step() {
    EXTRA_STEPS.fetch_add(1, Ordering::Relaxed);
    thread::sleep(STEP_DELAY);
}

/// An execution that is running. It starts and finishes only before threads are parked: a thread that returns
/// from one waits for the GIL, and if the interpreter ends meanwhile, it ends the thread inside JAX,
/// which then aborts.
pub(crate) struct RunningExecution;

impl RunningExecution {
    pub(crate) fn start() -> Self {
        park_if_finished();
        RUNNING_EXECUTIONS.fetch_add(1, Ordering::AcqRel);
        RunningExecution
    }
}

impl Drop for RunningExecution {
    fn drop(&mut self) {
        RUNNING_EXECUTIONS.fetch_sub(1, Ordering::AcqRel);
        park_if_finished();
    }
}

/// Waits forever if other threads are parked and this is one of them.
fn park_if_finished() {
    if let Some(active) = ACTIVE_THREAD.get() {
        while thread::current().id() != *active {
            thread::park();
        }
    }
}
