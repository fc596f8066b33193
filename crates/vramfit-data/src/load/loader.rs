//! The loader: what a consumer sees.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vramfit_base::{Bytes, Error, Result};

use super::batch::{Batch, BatchBuffer};
use super::batching::BatchPlan;
use super::buffer_pool::BufferPool;
use super::column::Column;
use super::columns::Columns;
use super::derived::DerivedColumn;
use super::options::LoaderOptions;
use super::plan::{LoaderPlan, block_bytes};
use super::reader_thread::TaskRunner;
use super::scheduler::{EpochScheduler, OPEN_WINDOWS, PendingBatch};
use super::selection::make_order;
use super::shared_state::SharedState;
use super::slab::Slab;
use super::stats::Stats;
use super::validate::{ensure_one_batch, ensure_resumable};
use super::window::WindowPlan;
use crate::order::{self, Engine, Epoch, LoaderState, Order};

/// The consumer's thread reads no more than this in one task: it would keep it from a batch that is ready.
const MAX_INLINE_READ_BYTES: u64 = 4 << 20;

/// What [`Loader::poll_batch`] returns.
#[derive(Debug)]
pub enum BatchPoll {
    /// The next batch.
    Ready(Batch),
    /// None was ready in time.
    Pending {
        /// Whether none will be before the consumer drops one: it holds all that the budget allows.
        is_starved: bool,
    },
    /// The epoch is over.
    Finished,
}

/// Reads batches ahead of a consumer.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<SharedState>,
    columns: Arc<Columns>,
    options: LoaderOptions,
    order: Order,
    plan: LoaderPlan,
    /// Where the next batch is.
    epoch: u64,
    position: u64,
    threads: Vec<JoinHandle<()>>,
    /// Runs tasks on the consumer's thread while it waits.
    inline_runner: Option<TaskRunner>,
    /// Memory of the windows of the previous epoch.
    free_slabs: Vec<Slab>,
}

impl Loader {
    /// Opens a file. None of its data is read, and no thread is started.
    ///
    /// # Errors
    /// `invalid-argument` when the options cannot be met; all that opening a file can fail with.
    pub fn open(mut options: LoaderOptions) -> Result<Loader> {
        let columns = Columns::open(&options)?;
        let order = make_order(&options, &columns, Engine::Sequential)?;
        options.weights = None;
        if options.is_partial && options.stacked_batches.is_none() && options.shard.count == 1 {
            options.batch_size = options.batch_size.min(order.len());
        }
        // Before the memory: a batch that the rows do not fill needs no other budget.
        ensure_one_batch(&options, order.len())?;
        let plan = LoaderPlan::new(&options, &columns)?;
        let order = order.with_engine(plan.choice.engine);
        let buffers = BufferPool::new(
            columns.batch_lengths(&options),
            plan.buffers,
            plan.max_buffers,
            options.poison,
        );
        Ok(Loader {
            shared: Arc::new(SharedState::new(buffers)),
            columns: Arc::new(columns),
            options,
            order,
            plan,
            epoch: 0,
            position: 0,
            threads: Vec::new(),
            inline_runner: None,
            free_slabs: Vec::new(),
        })
    }

    /// Returns how the file is read, and what the budget is spent on.
    pub fn plan(&self) -> &LoaderPlan {
        &self.plan
    }

    /// Returns the datasets, in the order of the options.
    pub fn columns(&self) -> &[Column] {
        &self.columns.columns
    }

    /// Returns the columns that say something about samples; they follow the datasets in batches.
    pub fn derived_columns(&self) -> &[DerivedColumn] {
        &self.columns.derived
    }

    /// Returns what a reader should know of files that were not closed.
    pub fn unclosed_files(&self) -> &[String] {
        &self.columns.unclosed
    }

    /// Returns the options.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Returns how many rows an epoch has, all processes together.
    pub fn rows(&self) -> u64 {
        self.order.len()
    }

    /// Returns how many batches (or stacks of them) an epoch has.
    ///
    /// # Errors
    /// None that opening did not have.
    pub fn batches(&self) -> Result<u64> {
        Ok(self.batch_plan(0)?.count)
    }

    /// Returns the rows of the file at positions of an epoch; positions after its end are left out.
    pub fn file_rows(&self, epoch: u64, positions: Range<u64>) -> Vec<u64> {
        let end = positions.end.min(self.order.len());
        let mut rows = Vec::new();
        if positions.start < end {
            let epoch = self.order.epoch(epoch);
            epoch.append_rows(positions.start..end, &mut rows);
        }
        rows
    }

    /// Returns the epoch and the position of the next row, all processes together.
    pub fn position(&self) -> (u64, u64) {
        (self.epoch, self.position)
    }

    /// Returns the statistics.
    ///
    /// # Errors
    /// `invalid-argument` in a forked copy of the process.
    pub fn stats(&self) -> Result<Stats> {
        self.ensure_not_forked()?;
        let state = self.shared.lock();
        let mut stats = state.stats;
        (stats.buffer_bytes, stats.held_bytes) = state.buffers.bytes();
        Ok(stats)
    }

    /// Starts reading an epoch at a position, and stops what was read before.
    ///
    /// # Errors
    /// `file-changed`; `invalid-argument` in a forked copy of the process; `io` when the system cannot start
    /// threads or has not enough memory.
    pub fn start(&mut self, epoch: u64, position: u64) -> Result<()> {
        self.ensure_not_forked()?;
        self.stop();
        self.columns.ensure_unchanged()?;
        let batch_plan = self.batch_plan(position)?;
        (self.epoch, self.position) = (epoch, position);
        let order = self.order.epoch(epoch);
        let windows = self.window_plan(&order);
        let task_bytes = match &windows {
            Some(windows) => windows.task_bytes(),
            None => self.plan.batch_bytes,
        };
        let mut slabs = std::mem::take(&mut self.free_slabs);
        if let Some(windows) = &windows
            && slabs.is_empty()
        {
            slabs = windows.allocate_windows(OPEN_WINDOWS as u64, &self.columns)?;
        }
        let windows = windows.map(Arc::new);
        let scheduler = EpochScheduler::new(batch_plan, windows.clone(), slabs);
        self.shared.lock().scheduler = Some(scheduler);
        let runner = TaskRunner {
            shared: Arc::clone(&self.shared),
            columns: Arc::clone(&self.columns),
            epoch: Arc::new(order),
            windows,
        };
        self.inline_runner =
            (self.plan.reads_inline && task_bytes <= MAX_INLINE_READ_BYTES).then(|| runner.clone());
        for number in 0..self.plan.threads {
            let runner = runner.clone();
            let thread = std::thread::Builder::new().name(format!("vramfit-read-{number}"));
            match thread.spawn(move || runner.run_until_finished()) {
                Ok(thread) => self.threads.push(thread),
                Err(error) => {
                    self.stop();
                    let what = "cannot start a reader thread";
                    return Err(Error::io(what).cause(error));
                }
            }
        }
        Ok(())
    }

    /// Waits for the next batch, or helps to make it, but no longer than `timeout`, and no longer than
    /// `starved_timeout` while the consumer holds all buffers: it may have to do something before one is returned.
    ///
    /// # Errors
    /// What a reader thread failed with; `invalid-argument` in a forked copy of the process.
    pub fn poll_batch(
        &mut self,
        timeout: Duration,
        starved_timeout: Duration,
    ) -> Result<BatchPoll> {
        self.ensure_not_forked()?;
        let start = Instant::now();
        let mut guard = self.shared.lock();
        loop {
            let state = &mut *guard;
            let Some(scheduler) = &mut state.scheduler else {
                return Ok(BatchPoll::Finished);
            };
            if let Some(batch) = scheduler.take_ready() {
                self.position = batch.spec.end;
                if scheduler.is_finished() {
                    (self.epoch, self.position) = (self.epoch + 1, 0);
                }
                state.stats.record_batch(&batch, start.elapsed());
                self.shared.wake_readers(state);
                drop(guard);
                return Ok(BatchPoll::Ready(self.hand_out(batch)));
            }
            if let Some(error) = scheduler.failure() {
                return Err(error.clone());
            }
            if scheduler.is_finished() {
                if self.position > 0 {
                    // The rows that are left of the epoch do not fill a batch.
                    (self.epoch, self.position) = (self.epoch + 1, 0);
                }
                drop(guard);
                self.stop();
                return Ok(BatchPoll::Finished);
            }
            let mut is_starved = scheduler.is_out_of_buffers(&state.buffers);
            if is_starved && state.buffers.grow() {
                // The consumer keeps its batches: the rest of the budget is for that.
                self.shared.wake_readers(state);
                is_starved = false;
            }
            let limit = if is_starved { timeout.min(starved_timeout) } else { timeout };
            let elapsed = start.elapsed();
            if elapsed >= limit {
                state.stats.waiting += elapsed;
                return Ok(BatchPoll::Pending { is_starved });
            }
            if let Some(runner) = &self.inline_runner {
                let has_run;
                (guard, has_run) = runner.run_one(guard);
                if has_run {
                    continue;
                }
            }
            guard = self.shared.wait_for_batch(guard, limit - elapsed);
        }
    }

    /// Returns a budget with which a program can keep all batches of an epoch.
    ///
    /// # Errors
    /// As [`Loader::batches`].
    pub fn budget_to_keep_all(&self) -> Result<Bytes> {
        Ok(self.plan.budget_to_keep(self.batches()?, &self.options, &self.columns))
    }

    /// Stops reading and waits for the threads. Batches that were handed out stay as they are.
    pub fn stop(&mut self) {
        if !self.shared.is_current_process() {
            // The threads of a forked copy do not exist; there is nothing to wait for.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.inline_runner = None;
        if let Some(scheduler) = &mut self.shared.lock().scheduler {
            scheduler.stop();
        }
        self.shared.wake_all_readers();
        for thread in self.threads.drain(..) {
            // It catches its own panics.
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        if let Some(scheduler) = state.scheduler.take() {
            self.free_slabs = scheduler.finish(&mut state.buffers);
        }
    }

    /// Returns what to save to resume after the last batch that was handed out.
    pub fn state(&self) -> LoaderState {
        self.state_at(self.epoch, self.position)
    }

    /// Returns what to save to resume from a position of an epoch.
    pub fn state_at(&self, epoch: u64, position: u64) -> LoaderState {
        let file = order::DataFingerprint {
            contents: self.columns.contents.hash(self.columns.segments()),
            ..self.columns.fingerprint
        };
        let mut state = LoaderState::new(self.order.clone(), epoch, position, file);
        state.samples = self.columns.sample_hash;
        state.files = self.columns.contents.digests(self.columns.segments()).cloned();
        state
    }

    /// Restores a state; the caller then [`start`](Self::start)s from there.
    ///
    /// Returns a note about the file: what differs, where `force` accepts it, or that only
    /// parts of a large file were compared.
    ///
    /// # Errors
    /// `file-changed`; `invalid-argument` when the state has another seed or subset of the rows, or its windows
    /// exceed the budget.
    pub fn restore(&mut self, state: &LoaderState, force: bool) -> Result<Option<String>> {
        self.ensure_not_forked()?;
        // First, because other samples may be in other parts of the same file.
        if state.samples != self.columns.sample_hash {
            return Err(Error::invalid_argument(
                "the state was saved with different `samples`, `shift` or `normalize`",
            )
            .hint("create the loader with these arguments of the run to resume"));
        }
        let path = self.columns.shown.clone();
        let file = self.columns.fingerprint;
        let (contents, segments) = (&self.columns.contents, self.columns.segments());
        let matched = state
            .ensure_matches(&path, contents.main_files() > 1, &file, || contents.hash(segments))
            .map_err(|error| contents.name_changed(segments, state.files.as_ref(), error));
        let note = match matched {
            Err(error) if force => Some(error.message().to_owned()),
            Err(error) => return Err(self.columns.name_growth(error, state.order.rows())),
            Ok(()) if state.file.modified_ns == file.modified_ns => None,
            Ok(()) => contents.sampled(segments).map(|sampled| {
                format!(
                    "`{path}` was copied or written to since; its structure is unchanged, and so are the {} that were compared",
                    Bytes(sampled)
                )
            }),
        };
        ensure_resumable(&state.order, &self.order)?;
        let engine = state.order.engine();
        let plan = self.plan.with_engine(engine, &self.options, &self.columns)?;
        self.stop();
        let mut shared = self.shared.lock();
        shared.buffers.set_capacity(plan.buffers, plan.max_buffers);
        drop(shared);
        if plan.choice.engine != self.plan.choice.engine {
            // They have another size.
            self.free_slabs = Vec::new();
        }
        self.plan = plan;
        self.order = self.order.with_engine(engine);
        (self.epoch, self.position) = (state.epoch, state.position);
        Ok(note)
    }

    fn batch_plan(&self, start: u64) -> Result<BatchPlan> {
        BatchPlan::new(&self.options, self.order.len(), start)
    }

    fn window_plan(&self, epoch: &Epoch) -> Option<WindowPlan> {
        let block_bytes = |rows| block_bytes(&self.options, &self.columns, rows);
        match self.order.engine() {
            Engine::BlockWindows(size) | Engine::ChunkWindows(size) => {
                let block_bytes = block_bytes(size.block_rows);
                Some(WindowPlan::shuffled(epoch.clone(), size, block_bytes))
            }
            Engine::Sequential | Engine::GlobalShuffle => {
                let windows = self.plan.sequential_windows?;
                let block_bytes = block_bytes(windows.block_rows);
                Some(WindowPlan::sequential(epoch.clone(), windows, block_bytes))
            }
        }
    }

    fn hand_out(&self, batch: PendingBatch) -> Batch {
        let buffers = batch.buffers.into_iter().enumerate();
        Batch {
            columns: buffers
                .map(|(column, buffer)| BatchBuffer::new(buffer, column, &self.shared))
                .collect(),
            objects: batch.objects,
            valid: batch.spec.valid,
        }
    }

    fn ensure_not_forked(&self) -> Result<()> {
        if self.shared.is_current_process() {
            return Ok(());
        }
        Err(Error::invalid_argument("this loader was created before `fork()`, so its reader threads do not exist in the child process")
        .hint("create the loader in the process that uses it, or start processes with `spawn`"))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.stop();
    }
}
