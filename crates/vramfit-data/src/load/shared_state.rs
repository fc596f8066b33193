//! The state that reader threads and the consumer share: what the lock protects, and who is woken when.
//!
//! Waking a thread takes longer than making a small batch. So a thread that waits for buffers is woken when it can
//! make several batches, or when the consumer waits; and the consumer when there are several, or when no
//! more are made at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::buffer_pool::{Buffer, BufferPool};
use super::scheduler::EpochScheduler;
use super::stats::Stats;

/// The lock, and the two conditions that are waited for.
#[derive(Debug)]
pub(super) struct SharedState {
    state: Mutex<State>,
    /// Signaled for the consumer.
    batch_ready: Condvar,
    /// Signaled for reader threads.
    work_available: Condvar,
    /// The process whose threads these are.
    process: u32,
}

/// What the lock protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) buffers: BufferPool,
    pub(super) scheduler: Option<EpochScheduler>,
    pub(super) stats: Stats,
    idle_readers: usize,
    is_consumer_waiting: bool,
}

impl State {
    fn ready_count(&self) -> usize {
        (self.scheduler.as_ref()).map_or(0, EpochScheduler::ready_count)
    }

    /// Whether to wake reader threads that wait for buffers: when there are some and they are needed at
    /// once, or suffice for as many batches as are ready. Waking one for every batch would take longer than making it;
    /// and one that is woken for nothing wakes the consumer, who wakes it again.
    fn should_wake_readers(&self) -> bool {
        let free = self.buffers.free_sets();
        self.idle_readers > 0
            && free > 0
            && (self.is_consumer_waiting || free >= self.ready_count())
    }
}

impl SharedState {
    pub(super) fn new(buffers: BufferPool) -> SharedState {
        SharedState {
            state: Mutex::new(State {
                buffers,
                scheduler: None,
                stats: Stats::default(),
                idle_readers: 0,
                is_consumer_waiting: false,
            }),
            batch_ready: Condvar::new(),
            work_available: Condvar::new(),
            process: std::process::id(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a reader thread may have something to do.
    pub(super) fn wait_for_work<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        state.idle_readers += 1;
        let mut state = (self.work_available.wait(state)).unwrap_or_else(PoisonError::into_inner);
        state.idle_readers -= 1;
        state
    }

    pub(super) fn wait_for_batch<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        state.is_consumer_waiting = true;
        self.wake_readers(&state);
        let waited = self.batch_ready.wait_timeout(state, timeout);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_consumer_waiting = false;
        state
    }

    /// Wakes other reader threads after a task, and the consumer once there are several batches for it.
    pub(super) fn notify_progress(&self, state: &State) {
        if state.idle_readers > 0 {
            self.work_available.notify_all();
        }
        if state.ready_count() >= state.buffers.wake_threshold() {
            self.notify_consumer(state);
        }
    }

    /// Wakes the consumer for whatever there is, because a reader thread makes no batch next.
    pub(super) fn notify_consumer(&self, state: &State) {
        let should_wake =
            |scheduler: &EpochScheduler| scheduler.should_wake_consumer(&state.buffers);
        if state.is_consumer_waiting && state.scheduler.as_ref().is_some_and(should_wake) {
            self.batch_ready.notify_one();
        }
    }

    /// Wakes reader threads that wait for buffers, when it is worth it.
    pub(super) fn wake_readers(&self, state: &State) {
        if state.should_wake_readers() {
            self.work_available.notify_all();
        }
    }

    pub(super) fn wake_all_readers(&self) {
        self.work_available.notify_all();
    }

    /// Takes back the buffer of a column.
    pub(super) fn recycle(&self, column: usize, buffer: Buffer) {
        // In a forked copy the lock may be held by a thread that does not exist there.
        if self.is_current_process() {
            let mut state = self.lock();
            state.buffers.recycle(column, buffer);
            self.wake_readers(&state);
        }
    }

    /// Whether this is the process whose threads these are.
    pub(super) fn is_current_process(&self) -> bool {
        self.process == std::process::id()
    }
}
