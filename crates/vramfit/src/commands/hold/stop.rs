//! When to free the memory: on a signal, or after a duration.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_runner::parallel::receive_within;
use vramfit_runner::signals::is_ignored;

/// Why the memory was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    DurationElapsed,
    Interrupted,
    /// Signals can no longer be received.
    SignalsLost,
}

impl StopReason {
    pub(super) fn describe(self) -> &'static str {
        match self {
            StopReason::DurationElapsed => "duration elapsed",
            StopReason::Interrupted => "interrupted",
            StopReason::SignalsLost => "signals can no longer be received",
        }
    }
}

/// Receives signals from its creation on.
#[derive(Debug)]
pub(super) struct StopSignals {
    received: Receiver<()>,
}

impl StopSignals {
    /// Starts to receive signals, except for those that the parent process ignores (`nohup`).
    ///
    /// # Errors
    /// `internal` if the system does not allow it.
    pub(super) fn listen() -> Result<StopSignals> {
        let wanted: Vec<i32> =
            [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect();
        let mut signals = Signals::new(&wanted).map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot handle signals").cause(error)
        })?;
        let (sender, received) = mpsc::channel();
        std::thread::spawn(move || {
            for _ in &mut signals {
                // The receiver is gone once the memory is freed.
                if sender.send(()).is_err() {
                    break;
                }
            }
        });
        Ok(StopSignals { received })
    }

    /// Returns whether a signal has arrived.
    pub(super) fn poll(&self) -> Option<StopReason> {
        let received = self.received.try_recv().ok();
        received.map(|()| StopReason::Interrupted)
    }

    /// Waits for a signal, at most for a duration.
    pub(super) fn wait(&self, duration: Option<Duration>) -> StopReason {
        match receive_within(&self.received, duration) {
            Ok(()) => StopReason::Interrupted,
            Err(RecvTimeoutError::Timeout) => StopReason::DurationElapsed,
            Err(RecvTimeoutError::Disconnected) => StopReason::SignalsLost,
        }
    }
}
