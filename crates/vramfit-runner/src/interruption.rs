//! Signals that end a command which makes dry runs, with all that it has started.
//!
//! A dry run of which nobody sees anything must not go on when the command that wanted its result is told
//! to end, and that it was ended is no failure of the program in it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use vramfit_base::{Error, ErrorKind, Result};

use crate::process_tree::{Process, descendants};
use crate::signals::{is_ignored, signal_name};

/// How long programs have to end by themselves, and to remove their temporary files.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The first signal that came; 0 for none.
static RECEIVED: AtomicI32 = AtomicI32::new(0);
/// Whether signals end the command.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// While it exists, SIGINT, SIGTERM and SIGHUP end the programs that this process has started since then;
/// signals that the caller ignores (`nohup`) remain ignored.
pub struct Interruption {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Interruption {
    /// Begins to watch for signals.
    ///
    /// # Errors
    /// `internal` where the system refuses.
    pub fn watch() -> Result<Self> {
        let failed =
            |error| Error::new(ErrorKind::Internal, "cannot install signal handlers").cause(error);
        let watched = [SIGINT, SIGTERM, SIGHUP];
        let caught = watched.into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new(caught).map_err(failed)?;
        let handle = signals.handle();
        let was_watched = IS_WATCHED.swap(true, Ordering::SeqCst);
        debug_assert!(!was_watched, "a command watches for signals once");
        // A process whose parent ends becomes our child, and is found however early its parent ended.
        set_child_subreaper(Some(getpid())).map_err(|error| failed(error.into()))?;
        // Jobs of the shell that has become this process by `exec`.
        let others: HashSet<Process> = descendants(getpid(), &HashSet::new()).into_iter().collect();
        let thread = std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                RECEIVED.store(signal, Ordering::SeqCst);
                end_descendants(&others);
            }
        });
        Ok(Interruption { handle, thread: Some(thread) })
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        self.handle.close();
        IS_WATCHED.store(false, Ordering::SeqCst);
        // What takes longer to end than the program that has started it is waited for.
        let _ = self.thread.take().map(JoinHandle::join);
        // Fails only where the system does not know it, and then `watch` has failed.
        let _ = set_child_subreaper(None);
    }
}

/// Returns the signal that ends the command, if one came.
pub fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

/// Ensures that no signal has come.
///
/// # Errors
/// `interrupted`.
pub fn ensure_none() -> Result<()> {
    received().map_or(Ok(()), |signal| {
        let message = format!("interrupted by {}", signal_name(signal));
        Err(Error::new(ErrorKind::Interrupted, message))
    })
}

/// Returns the exit code of a command that a signal has ended.
pub fn exit_code() -> Option<u8> {
    received().and_then(|signal| u8::try_from(128 + signal).ok())
}

/// Ends everything that this process has started, except `others`, and what is started while it does.
fn end_descendants(others: &HashSet<Process>) {
    let killing = Instant::now() + END_TIMEOUT;
    let giving_up = killing + END_TIMEOUT;
    // Each is told once.
    let mut known: HashSet<Process> = HashSet::new();
    loop {
        let is_watched = IS_WATCHED.load(Ordering::SeqCst);
        let is_late = Instant::now() >= killing;
        for process in descendants(getpid(), others) {
            if known.insert(process) && !is_late {
                process.send(Signal::TERM);
            }
        }
        known.retain(|process| process.is_running());
        if is_late {
            known.iter().for_each(|process| process.send(Signal::KILL));
        }
        // Nothing can end a process that waits for a disk.
        if !is_watched && (known.is_empty() || Instant::now() >= giving_up) {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
