//! When to stop holding: a signal, or the end of the time.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vramfit_core::{Error, ErrorKind, Result};

use crate::child::is_ignored;

/// Why holding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The time was over.
    Time,
    /// Ctrl-C, or whoever started us wants us to end.
    Asked,
    /// Signals can no longer be received.
    Lost,
}

impl Ending {
    pub(super) fn words(self) -> &'static str {
        match self {
            Ending::Time => "the time was over",
            Ending::Asked => "it was asked to end",
            Ending::Lost => "signals could no longer be received",
        }
    }
}

/// Watches for signals, from the moment it is made.
#[derive(Debug)]
pub(super) struct Endings {
    asked: Receiver<()>,
}

impl Endings {
    /// Begins to watch. What our caller ignores stays ignored (`nohup`).
    ///
    /// # Errors
    /// `internal` when the system does not let us.
    pub(super) fn watch() -> Result<Endings> {
        let wanted: Vec<i32> = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter(|signal| !is_ignored(*signal))
            .collect();
        let mut signals = Signals::new(&wanted).map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot watch for signals").cause(error)
        })?;
        let (sender, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for _ in &mut signals {
                // The other side is gone when the memory is given back already.
                if sender.send(()).is_err() {
                    break;
                }
            }
        });
        Ok(Endings { asked })
    }

    /// Says whether we have been asked to end.
    pub(super) fn so_far(&self) -> Option<Ending> {
        self.asked.try_recv().ok().map(|()| Ending::Asked)
    }

    /// Waits until we are asked to end, at most for a time.
    pub(super) fn wait(&self, time: Option<Duration>) -> Ending {
        match time {
            Some(time) => match self.asked.recv_timeout(time) {
                Ok(()) => Ending::Asked,
                Err(RecvTimeoutError::Timeout) => Ending::Time,
                Err(RecvTimeoutError::Disconnected) => Ending::Lost,
            },
            None => match self.asked.recv() {
                Ok(()) => Ending::Asked,
                Err(_) => Ending::Lost,
            },
        }
    }
}
