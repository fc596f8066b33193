//! Where reader threads and the consumer meet: what is under the lock, and who is woken when.
//!
//! Waking a thread takes longer than making a small batch. So a thread that waits for memory is woken when it can make
//! several batches, or when the consumer waits; and the consumer when there are several, or when no
//! more are made at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::buffer::{Returned, Stock};
use super::course::Course;
use super::stats::Stats;

/// Where threads and consumer meet.
#[derive(Debug)]
pub(super) struct Desk {
    state: Mutex<Now>,
    /// Where the consumer waits for a batch.
    ready: Condvar,
    /// Where reader threads wait for something to do.
    work: Condvar,
    /// The process whose threads these are.
    process: u32,
}

/// What is under the lock.
#[derive(Debug)]
pub(super) struct Now {
    pub(super) stock: Stock,
    pub(super) course: Option<Course>,
    pub(super) stats: Stats,
    /// Reader threads that wait.
    idle: usize,
    /// Whether the consumer waits.
    is_awaited: bool,
}

impl Now {
    /// Whether it is time to wake reader threads that wait for memory: when there is some and they are needed at
    /// once, or can make as many batches as are ready. Waking one for every batch would take longer than making it;
    /// and one that is woken for nothing wakes the consumer, who wakes it again.
    fn is_worth_waking(&self) -> bool {
        let ready = self.course.as_ref().map_or(0, Course::ready);
        let free = self.stock.free_sets();
        self.idle > 0 && free > 0 && (self.is_awaited || free >= ready)
    }
}

impl Desk {
    pub(super) fn new(stock: Stock) -> Desk {
        Desk {
            state: Mutex::new(Now {
                stock,
                course: None,
                stats: Stats::default(),
                idle: 0,
                is_awaited: false,
            }),
            ready: Condvar::new(),
            work: Condvar::new(),
            process: std::process::id(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Now> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be something to do for a reader thread.
    pub(super) fn wait_for_work<'a>(&self, mut state: MutexGuard<'a, Now>) -> MutexGuard<'a, Now> {
        state.idle += 1;
        let mut state = (self.work.wait(state)).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        state
    }

    /// Tells that a reader thread has done something: others may go on with it, and the consumer, once there are
    /// several batches for it.
    pub(super) fn tell(&self, state: &Now) {
        if state.idle > 0 {
            self.work.notify_all();
        }
        let ready = state.course.as_ref().map_or(0, Course::ready);
        if ready >= state.stock.several() {
            self.hand_over(state);
        }
    }

    /// Wakes the consumer for whatever there is, because a reader thread makes no batch next.
    pub(super) fn hand_over(&self, state: &Now) {
        let course = state.course.as_ref();
        if state.is_awaited && course.is_some_and(|course| course.is_of_interest(&state.stock)) {
            self.ready.notify_one();
        }
    }

    /// Wakes reader threads that wait for memory, when it is time.
    pub(super) fn wake_readers(&self, state: &Now) {
        if state.is_worth_waking() {
            self.work.notify_all();
        }
    }

    /// Wakes all reader threads, whatever they wait for.
    pub(super) fn wake_all(&self) {
        self.work.notify_all();
    }

    pub(super) fn give_back(&self, column: usize, buffer: Returned) {
        // In a forked copy the lock may be held by a thread that is not there.
        if self.is_here() {
            let mut state = self.lock();
            state.stock.give_back(column, buffer);
            self.wake_readers(&state);
        }
    }

    /// Waits for a batch, but no longer than `limit`.
    pub(super) fn wait_for_batch<'a>(
        &self,
        mut state: MutexGuard<'a, Now>,
        limit: Duration,
    ) -> MutexGuard<'a, Now> {
        state.is_awaited = true;
        self.wake_readers(&state);
        let waited = self.ready.wait_timeout(state, limit);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_awaited = false;
        state
    }

    /// Whether this is the process whose threads these are.
    pub(super) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}
