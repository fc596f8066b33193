//! How many files are open. The system limits them for the whole process, so all readers count together.

use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the program itself may need besides those that are read here.
const OTHER_FILES: u64 = 256;

static OPEN: AtomicU64 = AtomicU64::new(0);
static CLOSE_IDLE: OnceLock<fn() -> bool> = OnceLock::new();

/// Counts as one open file until it is dropped.
#[derive(Debug)]
pub(super) struct OpenFileGuard(());

impl OpenFileGuard {
    fn new() -> OpenFileGuard {
        OPEN.fetch_add(1, Ordering::Relaxed);
        OpenFileGuard(())
    }
}

impl Drop for OpenFileGuard {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sets what closes some files that are kept open and not in use, and returns whether there were any.
pub(crate) fn set_close_idle(close_idle: fn() -> bool) {
    let _ = CLOSE_IDLE.set(close_idle);
}

/// Opens a file by `open`. Where too many are open, the limit of the process is raised as far as the system allows
/// without privileges, and then those that are not in use are closed.
pub(super) fn open_counted(
    open: impl Fn() -> io::Result<File>,
) -> io::Result<(File, OpenFileGuard)> {
    let counted = OpenFileGuard::new();
    let close_idle = || CLOSE_IDLE.get().is_some_and(|close| close());
    while is_above_limit(OPEN.load(Ordering::Relaxed)) && close_idle() {}
    loop {
        match open() {
            // The program itself has many files open.
            Err(error) if is_exhausted(&error) && close_idle() => {}
            opened => return Ok((opened?, counted)),
        }
    }
}

/// Whether an error says that too many files are open.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Whether so many files are too many, with the highest limit that the process may have.
fn is_above_limit(open: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if open <= count_allowed(current) {
        return false;
    }
    // Twice as many, so that it is seldom raised.
    let raised = limit.maximum.unwrap_or(u64::MAX).min(open.saturating_mul(2) + OTHER_FILES);
    let raise = Rlimit { current: Some(raised), maximum: limit.maximum };
    let is_raised = raised > current && setrlimit(Resource::Nofile, raise).is_ok();
    open > count_allowed(if is_raised { raised } else { current })
}

/// Returns how many files may be open here with a limit of the process.
fn count_allowed(limit: u64) -> u64 {
    limit.saturating_sub(OTHER_FILES).max(limit / 2).max(1)
}
