//! Pieces on their way from the threads that make them to the one that writes them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use vramfit_base::{Error, ErrorKind, Result};

use super::pipeline::EncodedChunk;

/// Pieces between the threads that make them and the one that writes them.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    end: u64,
    window: u64,
}

struct State {
    /// The next piece that nobody has taken.
    next: u64,
    /// The piece that is written next; it and those behind it may be in `ready`.
    written: u64,
    ready: VecDeque<Option<Result<Vec<EncodedChunk>>>>,
    spare: Vec<Vec<EncodedChunk>>,
    stopped: bool,
}

impl Queue {
    pub(super) fn new(first: u64, end: u64, window: usize) -> Self {
        Queue {
            state: Mutex::new(State {
                next: first,
                written: first,
                ready: (0..window).map(|_| None).collect(),
                spare: Vec::new(),
                stopped: false,
            }),
            changed: Condvar::new(),
            end,
            window: window as u64,
        }
    }

    /// A thread that panicked has left whole values behind: each change here is one step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free slot, and returns the next piece to produce, with buffers; `None` when there is no more.
    pub(super) fn take(&self) -> Option<(u64, Vec<EncodedChunk>)> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.next >= self.end {
                return None;
            }
            if state.next < state.written + self.window {
                state.next += 1;
                return Some((state.next - 1, state.spare.pop().unwrap_or_default()));
            }
            state = self.wait(state);
        }
    }

    pub(super) fn put(&self, piece: u64, made: Result<Vec<EncodedChunk>>) {
        let mut state = self.lock();
        let slot = (piece - state.written) as usize;
        state.ready[slot] = Some(made);
        self.changed.notify_all();
    }

    /// Waits for a piece.
    pub(super) fn next(&self, piece: u64) -> Result<Vec<EncodedChunk>> {
        let mut state = self.lock();
        loop {
            if let Some(made) = state.ready[0].take() {
                debug_assert_eq!(piece, state.written);
                state.ready.rotate_left(1);
                state.written += 1;
                self.changed.notify_all();
                return made;
            }
            if state.stopped {
                return Err(Error::new(
                    ErrorKind::Internal,
                    "a thread that produces rows panicked",
                ));
            }
            state = self.wait(state);
        }
    }

    pub(super) fn recycle(&self, buffers: Vec<EncodedChunk>) {
        self.lock().spare.push(buffers);
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// However the work ends, no thread waits for more of it.
pub(super) struct StopOnDrop<'a>(pub(super) &'a Queue);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
