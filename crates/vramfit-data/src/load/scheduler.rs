//! Which task of an epoch is next: the only place that decides. It knows no locks and no threads; the caller
//! holds the lock.
//!
//! Buffers are given out in the order of batches, so the first missing batch always has some, and waiting never
//! deadlocks. At most two windows are open: one whose rows are handed out, and one that is loaded meanwhile. A window
//! is closed when every batch that has rows in it has taken them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use vramfit_base::Error;

use super::batching::{BatchPlan, BatchSpec};
use super::buffer_pool::{Buffer, BufferPool};
use super::slab::Slab;
use super::window::{WindowBuffer, WindowPlan};

/// Windows that are open at a time.
pub(super) const OPEN_WINDOWS: usize = 2;

/// A batch that is being filled.
#[derive(Debug)]
pub(super) struct PendingBatch {
    pub(super) spec: BatchSpec,
    pub(super) buffers: Vec<Buffer>,
    /// What the elements of each column refer to, as far as it is filled; none where they refer to none.
    pub(super) objects: Vec<Option<Vec<Vec<u8>>>>,
    /// The position of the epoch before which it has all of its rows.
    pub(super) filled_until: u64,
}

impl PendingBatch {
    fn is_complete(&self) -> bool {
        self.filled_until == self.spec.end
    }
}

/// A task for a reader thread.
#[derive(Debug)]
pub(super) enum Task {
    /// Load some blocks of a window.
    Load {
        window: Arc<WindowBuffer>,
        index: usize,
        task: usize,
        /// Recycled memory.
        slab: Option<Slab>,
    },
    /// Fill batches from a window, or from the file where there are no windows. There are several only of small ones.
    Fill { batches: Vec<PendingBatch>, window: Option<(usize, Arc<WindowBuffer>)> },
}

/// What a reader thread does next.
#[derive(Debug)]
pub(super) enum NextTask {
    Run(Task),
    /// Nothing can be done before something changes.
    Wait,
    Finished,
}

/// The tasks of one epoch.
#[derive(Debug)]
pub(super) struct EpochScheduler {
    plan: BatchPlan,
    windows: Option<Arc<WindowPlan>>,
    active: VecDeque<ActiveWindow>,
    next_window: usize,
    end_window: usize,
    /// The next batch to start.
    next_batch: u64,
    /// Batches that wait for the next window.
    partial: BTreeMap<u64, PendingBatch>,
    ready: BTreeMap<u64, PendingBatch>,
    completed: u64,
    /// The next batch to hand out.
    next_ready: u64,
    running_tasks: usize,
    failure: Option<Error>,
    is_stopped: bool,
    /// Memory that no window uses.
    free_slabs: Vec<Slab>,
}

#[derive(Debug)]
struct ActiveWindow {
    index: usize,
    window: Arc<WindowBuffer>,
    started_tasks: usize,
    loaded_tasks: usize,
    /// Batches that have yet to take rows from it.
    batches_left: u64,
}

impl EpochScheduler {
    /// Schedules the batches of a plan, with memory for windows.
    pub(super) fn new(
        plan: BatchPlan,
        windows: Option<Arc<WindowPlan>>,
        free_slabs: Vec<Slab>,
    ) -> Self {
        let all = plan.positions();
        let (next_window, end_window) = match &windows {
            Some(windows) if plan.count > 0 => {
                (windows.window_at(all.start), windows.window_at(all.end - 1) + 1)
            }
            _ => (0, 0),
        };
        EpochScheduler {
            plan,
            windows,
            active: VecDeque::new(),
            next_window,
            end_window,
            next_batch: 0,
            partial: BTreeMap::new(),
            ready: BTreeMap::new(),
            completed: 0,
            next_ready: 0,
            running_tasks: 0,
            failure: None,
            is_stopped: false,
            free_slabs,
        }
    }

    /// Ends the epoch once no task runs: returns buffers to the pool, and the memory of windows for the next epoch.
    pub(super) fn finish(self, pool: &mut BufferPool) -> Vec<Slab> {
        for batch in self.partial.into_values().chain(self.ready.into_values()) {
            pool.recycle_set(batch.buffers);
        }
        let slabs = (self.active.into_iter())
            .filter_map(|active| Arc::into_inner(active.window))
            .flat_map(WindowBuffer::into_slabs);
        self.free_slabs.into_iter().chain(slabs).collect()
    }

    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns the error that ended the epoch.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Returns the next batch in order, when it is ready.
    pub(super) fn take_ready(&mut self) -> Option<PendingBatch> {
        let batch = self.ready.remove(&self.next_ready)?;
        self.next_ready += 1;
        Some(batch)
    }

    pub(super) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Whether a waiting consumer has a reason to look.
    pub(super) fn should_wake_consumer(&self, pool: &BufferPool) -> bool {
        self.ready.contains_key(&self.next_ready)
            || self.failure.is_some()
            || self.is_out_of_buffers(pool)
    }

    /// Whether every batch was handed out.
    pub(super) fn is_finished(&self) -> bool {
        self.next_ready == self.plan.count
    }

    /// Whether nothing can continue because the consumer holds all buffers. A batch that waits for its next window goes on
    /// without the consumer, also while no thread has taken that task yet.
    pub(super) fn is_out_of_buffers(&self, pool: &BufferPool) -> bool {
        self.running_tasks == 0
            && self.ready.is_empty()
            && self.partial.is_empty()
            && !self.is_finished()
            && !pool.has_free_set()
    }

    /// Returns what a thread does now.
    pub(super) fn next_task(&mut self, pool: &mut BufferPool) -> NextTask {
        if self.is_stopped || self.failure.is_some() || self.completed == self.plan.count {
            return NextTask::Finished;
        }
        let task = match self.windows.clone() {
            None => self.next_read(pool),
            Some(windows) => {
                self.open_windows(&windows);
                self.next_fill(&windows, pool).or_else(|| self.next_load())
            }
        };
        self.running_tasks += usize::from(task.is_some());
        task.map_or(NextTask::Wait, NextTask::Run)
    }

    /// Starts the next batch, when there are buffers for it.
    fn start_batch(&mut self, pool: &mut BufferPool) -> Option<PendingBatch> {
        if self.next_batch == self.plan.count || !pool.has_free_set() {
            return None;
        }
        let spec = match self.plan.batch(self.next_batch) {
            Ok(spec) => spec,
            Err(error) => {
                self.failure.get_or_insert(error);
                return None;
            }
        };
        let filled_until = self.plan.batch_positions(self.next_batch).start;
        let buffers = pool.acquire()?;
        self.next_batch += 1;
        Some(PendingBatch { spec, buffers, objects: Vec::new(), filled_until })
    }

    /// Starts the next batches of one task, while `is_included` agrees.
    fn start_batches(
        &mut self,
        pool: &mut BufferPool,
        is_included: impl Fn(&BatchPlan, u64) -> bool,
    ) -> Vec<PendingBatch> {
        let mut batches = Vec::new();
        let limit = pool.batches_per_task();
        while batches.len() < limit
            && self.next_batch < self.plan.count
            && is_included(&self.plan, self.next_batch)
            && let Some(batch) = self.start_batch(pool)
        {
            batches.push(batch);
        }
        batches
    }

    fn open_windows(&mut self, windows: &WindowPlan) {
        while self.active.len() < OPEN_WINDOWS && self.next_window < self.end_window {
            let window = windows.open(self.next_window);
            let positions = window.positions();
            // A window none of whose rows are in the subset has no positions.
            if !positions.is_empty() {
                self.active.push_back(ActiveWindow {
                    index: self.next_window,
                    started_tasks: 0,
                    loaded_tasks: 0,
                    batches_left: self.plan.batches_in(&positions),
                    window: Arc::new(window),
                });
            }
            self.next_window += 1;
        }
    }

    /// Finds batches to read from the file itself.
    fn next_read(&mut self, pool: &mut BufferPool) -> Option<Task> {
        let batches = self.start_batches(pool, |_, _| true);
        (!batches.is_empty()).then_some(Task::Fill { batches, window: None })
    }

    /// Finds batches that a loaded window has rows for.
    fn next_fill(&mut self, windows: &WindowPlan, pool: &mut BufferPool) -> Option<Task> {
        for place in 0..self.active.len() {
            let active = &self.active[place];
            if active.loaded_tasks < active.window.task_count() {
                continue;
            }
            let (index, window) = (active.index, Arc::clone(&active.window));
            let positions = window.positions();
            let waiting = (self.partial.iter())
                .find(|(_, batch)| positions.contains(&batch.filled_until))
                .map(|(sequence, _)| *sequence);
            let batches = match waiting.and_then(|sequence| self.partial.remove(&sequence)) {
                Some(batch) => vec![batch],
                None => self.start_batches(pool, |plan, next| {
                    windows.window_at(plan.batch_positions(next).start) == index
                }),
            };
            if !batches.is_empty() {
                let window = Some((index, window));
                return Some(Task::Fill { batches, window });
            }
        }
        None
    }

    /// Finds blocks of a window to load.
    fn next_load(&mut self) -> Option<Task> {
        let active = (self.active.iter_mut())
            .find(|active| active.started_tasks < active.window.task_count())?;
        active.started_tasks += 1;
        Some(Task::Load {
            window: Arc::clone(&active.window),
            index: active.index,
            task: active.started_tasks - 1,
            slab: self.free_slabs.pop(),
        })
    }

    /// Records that blocks of a window were loaded.
    pub(super) fn on_loaded(&mut self, index: usize) {
        self.running_tasks -= 1;
        if let Some(active) = self.active.iter_mut().find(|active| active.index == index) {
            active.loaded_tasks += 1;
        }
    }

    /// Records that batches have the rows of a window, or all their rows.
    pub(super) fn on_filled(&mut self, batches: Vec<PendingBatch>, window: Option<usize>) {
        self.running_tasks -= 1;
        for batch in batches {
            if let Some(index) = window {
                self.release_window(index);
            }
            if batch.is_complete() {
                self.completed += 1;
                self.ready.insert(batch.spec.sequence, batch);
            } else {
                self.partial.insert(batch.spec.sequence, batch);
            }
        }
    }

    /// Records that a task failed, which ends the epoch; the first error counts. Its batches keep their buffers until
    /// then.
    pub(super) fn on_failed(&mut self, error: Error, batches: Vec<PendingBatch>) {
        self.running_tasks -= 1;
        self.failure.get_or_insert(error);
        let batches = batches.into_iter();
        (self.partial).extend(batches.map(|batch| (batch.spec.sequence, batch)));
    }

    /// Closes a window when the last batch has taken its rows.
    fn release_window(&mut self, index: usize) {
        let Some(place) = self.active.iter().position(|active| active.index == index) else {
            return;
        };
        self.active[place].batches_left -= 1;
        if self.active[place].batches_left == 0
            && let Some(active) = self.active.remove(place)
            && let Some(window) = Arc::into_inner(active.window)
        {
            self.free_slabs.extend(window.into_slabs());
        }
    }
}
