//! What ending a run asks of the process: waking its main thread, and holding the other threads.
//! When a run is over is decided in `steps`, how it ends in Python (`_ending.py`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The only thread that may go on executing programs.
static LAST: OnceLock<ThreadId> = OnceLock::new();

/// Executions that are going on.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Steps that threads other than the main one have executed since the run was over.
static FURTHER: AtomicU64 = AtomicU64::new(0);

/// The pace of those steps. The main thread may still be cleaning up, and wants the processor.
const PACE: Duration = Duration::from_millis(50);

extern "C" fn do_nothing(_: libc::c_int) {}

/// Interrupts what the main thread waits in, so that Python looks whether it has anything to do.
///
/// A lock that is waited for (a thread that is joined, a queue, an event) looks at pending calls
/// when a signal comes, and at no other time. The signal is one that nobody else uses; where
/// somebody has a handler for it, nothing is sent.
pub fn wake_main_thread() {
    // SAFETY: the structs are plain data and filled before they are read; the handler does nothing,
    // so it may run at any time. The main thread of a process has the process's number.
    unsafe {
        let mut handler: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGURG, std::ptr::null(), &raw mut handler) != 0 {
            return;
        }
        let ours = do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        if matches!(handler.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
            // Without SA_RESTART: a wait that goes on by itself is not interrupted.
            handler.sa_flags = 0;
            handler.sa_sigaction = ours;
            libc::sigaction(libc::SIGURG, &raw const handler, std::ptr::null_mut());
        }
        if handler.sa_sigaction == ours {
            let process = libc::getpid();
            libc::syscall(libc::SYS_tgkill, process, process, libc::SIGURG);
        }
    }
}

/// Lets no thread but the calling one execute programs from now on: the others wait where their
/// execution begins or ends until the process has ended. Only the first call counts.
///
/// Returns when they are there, or after a second. To be called without the interpreter's lock: a
/// thread that comes from an execution needs it to get to the next.
pub fn hold_other_threads() {
    let _ = LAST.set(thread::current().id());
    for _ in 0..20 {
        thread::sleep(PACE);
        if RUNNING.load(Ordering::Acquire) == 0 {
            break;
        }
    }
}

/// Returns how many steps threads other than the main one have executed since the run was over.
pub fn further_steps() -> u64 {
    FURTHER.load(Ordering::Relaxed)
}

/// Says whether this is the process's first thread: Python's main thread.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: both take no argument and cannot fail.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Counts a further step of another thread, and slows it down.
pub(crate) fn rest() {
    FURTHER.fetch_add(1, Ordering::Relaxed);
    thread::sleep(PACE);
}

/// An execution that goes on. It begins and ends only while the run does: a thread that comes back
/// from one asks for the interpreter, and is ended inside of JAX, which aborts, if that ends, too.
pub(crate) struct Running;

impl Running {
    pub(crate) fn begin() -> Self {
        wait_if_over();
        RUNNING.fetch_add(1, Ordering::AcqRel);
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
        wait_if_over();
    }
}

/// Waits forever if the run has ended for this thread.
fn wait_if_over() {
    if let Some(last) = LAST.get() {
        while thread::current().id() != *last {
            thread::park();
        }
    }
}
