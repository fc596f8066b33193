//! A reader thread: it takes a task, runs it without the lock, and reports back. The consumer's own thread
//! does the same instead of sleeping, where the plan says so.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use vramfit_base::{Error, ErrorKind, Result};

use super::buffer_pool::Buffer;
use super::column::Column;
use super::columns::Columns;
use super::sample_copy::{fill_derived, fill_samples};
use super::scheduler::{NextTask, PendingBatch, Task};
use super::segments::TouchedFiles;
use super::shared_state::{SharedState, State};
use super::window::{WindowBuffer, WindowPlan, as_range};
use crate::hdf5::ByteStorage;
use crate::order::Epoch;

/// Runs the tasks of an epoch.
#[derive(Clone, Debug)]
pub(super) struct TaskRunner {
    pub(super) shared: Arc<SharedState>,
    pub(super) columns: Arc<Columns>,
    pub(super) epoch: Arc<Epoch>,
    pub(super) windows: Option<Arc<WindowPlan>>,
}

impl TaskRunner {
    /// Runs tasks on a reader thread until none is left.
    pub(super) fn run_until_finished(&self) {
        use_batch_scheduling();
        let mut state = self.shared.lock();
        loop {
            let next = next_task(&mut state);
            if !matches!(next, NextTask::Run(Task::Fill { .. })) {
                self.shared.notify_consumer(&state);
            }
            match next {
                NextTask::Finished => return,
                NextTask::Wait => {
                    let start = Instant::now();
                    state = self.shared.wait_for_work(state);
                    state.stats.idle += start.elapsed();
                }
                NextTask::Run(task) => state = self.run(task, state),
            }
        }
    }

    /// Runs one task on the consumer's thread, and returns whether there was one.
    pub(super) fn run_one<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, bool) {
        match next_task(&mut state) {
            NextTask::Run(task) => (self.run(task, state), true),
            NextTask::Wait | NextTask::Finished => (state, false),
        }
    }

    /// Runs a task without the lock, and records the outcome.
    fn run<'a>(&'a self, mut task: Task, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        drop(state);
        let start = Instant::now();
        let is_copy = matches!(task, Task::Fill { window: Some(_), .. });
        // A thread that panicked silently would leave the consumer waiting forever.
        let result = catch_unwind(AssertUnwindSafe(|| self.execute(&mut task)));
        let result = result.unwrap_or_else(|_| {
            let what = "a reader thread of the loader panicked";
            Err(Error::new(ErrorKind::Internal, what))
        });
        let elapsed = start.elapsed();
        let mut state = self.shared.lock();
        if is_copy {
            state.stats.filling += elapsed;
        } else {
            state.stats.reading += elapsed;
        }
        if let Some(scheduler) = &mut state.scheduler {
            match (task, result) {
                (Task::Load { index, window, .. }, Ok(())) => {
                    // The scheduler reuses the memory of a window that nobody else refers to.
                    drop(window);
                    scheduler.on_loaded(index);
                }
                (Task::Fill { batches, window }, Ok(())) => {
                    scheduler.on_filled(batches, window.map(|(index, _)| index));
                }
                (Task::Load { .. }, Err(error)) => scheduler.on_failed(error, Vec::new()),
                (Task::Fill { batches, .. }, Err(error)) => scheduler.on_failed(error, batches),
            }
        }
        self.shared.notify_progress(&state);
        state
    }

    fn execute(&self, task: &mut Task) -> Result<()> {
        match task {
            Task::Load { window, task, slab, .. } => {
                let Some(windows) = &self.windows else {
                    return Ok(());
                };
                let mut touched = TouchedFiles::new();
                let slab = slab.take();
                let loaded = window.load(*task, windows, &self.columns, slab, &mut touched);
                self.ensure_files_unchanged(loaded, &touched)
            }
            Task::Fill { batches, window: Some((_, window)) } => {
                let Some(windows) = &self.windows else {
                    return Ok(());
                };
                let mut touched = TouchedFiles::new();
                let mut batches = batches.iter_mut();
                let copied =
                    batches.try_for_each(|batch| self.copy(batch, window, windows, &mut touched));
                self.ensure_files_unchanged(copied, &touched)
            }
            Task::Fill { batches, window: None } => {
                let mut touched = TouchedFiles::new();
                let mut batches = batches.iter_mut();
                let read = batches.try_for_each(|batch| self.read(batch, &mut touched));
                self.ensure_files_unchanged(read, &touched)
            }
        }
    }

    /// Copies the rows that a window has for a batch.
    ///
    /// # Errors
    /// All that reading the texts or bytes that its elements refer to can fail with.
    fn copy(
        &self,
        batch: &mut PendingBatch,
        window: &WindowBuffer,
        windows: &WindowPlan,
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        let in_window = window.positions();
        let positions = &batch.spec.positions;
        let from = positions.partition_point(|at| *at < in_window.start);
        let to = positions.partition_point(|at| *at < in_window.end);
        let out = (batch.buffers.iter_mut().map(Buffer::bytes_mut))
            .zip(self.columns.sample_lengths())
            .map(|(bytes, length)| &mut bytes[from * length..to * length]);
        window.copy(&positions[from..to], windows, &self.columns, out)?;
        self.read_objects(batch, from..to, touched)?;
        batch.filled_until = in_window.end.min(batch.spec.end);
        Ok(())
    }

    /// Reads the texts or bytes that elements of a batch refer to, at some of its places.
    fn read_objects(
        &self,
        batch: &mut PendingBatch,
        places: Range<usize>,
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        let columns = &self.columns.columns;
        let is_variable = |column: &Column| column.bytes() == Some(ByteStorage::Variable);
        if !columns.iter().any(is_variable) {
            return Ok(());
        }
        let samples = self.samples_at(&batch.spec.positions[places.clone()]);
        batch.objects.resize(columns.len(), None);
        for (number, column) in columns.iter().enumerate().filter(|(_, column)| is_variable(column))
        {
            let length = column.sample_bytes();
            let elements = batch.buffers[number].bytes();
            let elements = &elements[places.start * length..places.end * length];
            let found = self.columns.read_objects(number, &samples, elements, touched)?;
            batch.objects[number].get_or_insert_default().extend(found);
        }
        Ok(())
    }

    /// Returns the samples at positions of the epoch.
    fn samples_at(&self, positions: &[u64]) -> Vec<u64> {
        let mut samples = Vec::with_capacity(positions.len());
        for run in positions.chunk_by(|one, next| one + 1 == *next) {
            self.epoch.append_rows(run[0]..run[0] + run.len() as u64, &mut samples);
        }
        samples
    }

    /// Reads the samples of a batch from the file.
    fn read(&self, batch: &mut PendingBatch, touched: &mut TouchedFiles) -> Result<()> {
        let samples = self.samples_at(&batch.spec.positions);
        let mut out = batch.buffers.iter_mut().map(Buffer::bytes_mut);
        for (number, out) in (0..self.columns.columns.len()).zip(&mut out) {
            self.read_column(number, &samples, out, touched)?;
        }
        fill_derived(&self.columns, &samples, out);
        self.read_objects(batch, 0..samples.len(), touched)?;
        batch.filled_until = batch.spec.end;
        Ok(())
    }

    fn read_column(
        &self,
        number: usize,
        samples: &[u64],
        out: &mut [u8],
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        let columns = &self.columns;
        if columns.samples.is_rows() {
            return match as_range(samples) {
                Some(rows) => columns.read(number, &std::iter::once(rows).collect(), out, touched),
                None => columns.gather(number, samples, out, touched),
            };
        }
        fill_samples(columns, number, samples, out, |_, rows, out| {
            columns.read(number, &std::iter::once(rows).collect(), out, touched)
        })
    }

    /// Trusts what was read only if the files are still the same afterwards; otherwise that is the error,
    /// whatever else went wrong.
    fn ensure_files_unchanged(&self, read: Result<()>, touched: &TouchedFiles) -> Result<()> {
        self.columns.ensure_touched_unchanged(touched)?;
        read
    }
}

fn next_task(state: &mut State) -> NextTask {
    match &mut state.scheduler {
        Some(scheduler) => scheduler.next_task(&mut state.buffers),
        None => NextTask::Finished,
    }
}

/// Schedules this thread as `SCHED_BATCH` (see `sched(7)`): it does not preempt others when it wakes, and its share of
/// the processors stays the same.
///
/// Otherwise a woken thread preempts the one that wakes it, which is the program's own: that was seen to stall for
/// 300 µs at a time, for batches that it did not need yet.
fn use_batch_scheduling() {
    #[allow(unsafe_code, reason = "nothing safe sets how a thread is scheduled")]
    // SAFETY: the structure is plain numbers, it lives during the call, and 0 is this thread. A system that
    // refuses leaves everything as it was.
    unsafe {
        // Another policy was chosen on purpose.
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            let param: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use vramfit_base::Bytes;

    use super::*;
    use crate::load::LoaderOptions;
    use crate::load::batching::BatchPlan;
    use crate::load::buffer_pool::BufferPool;
    use crate::load::scheduler::EpochScheduler;
    use crate::order::{Engine, Order, RemainderPolicy, RowSubset, WindowSize};
    use crate::write::{
        self, Compression, Content, Dataset, Number, Storage, WriteOptions, WriteTask,
    };

    const ROWS: u64 = 100;

    /// Writes a file whose rows are their numbers.
    fn make(path: &Path) {
        let chunks = Storage::Chunked { rows: 10, compression: Compression::Gzip(1) };
        let task = WriteTask {
            path,
            content: Content {
                datasets: vec![Dataset::new("x", Number::U64, vec![ROWS], chunks)],
                ..Content::default()
            },
            purpose: "a test",
            options: WriteOptions::default(),
            threads: 1,
            expected: Bytes(0),
        };
        let rows = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
            rows.for_each(|row| out[0].extend(row.to_le_bytes()));
            Ok(())
        };
        write::write(task, &rows, &mut |_| {}).unwrap();
    }

    /// Prepares an epoch of chunk windows of the file in batches of 8, with three sets of buffers, and no thread.
    fn prepare(path: &Path) -> (TaskRunner, Vec<u64>) {
        let options = LoaderOptions {
            batch_size: 8,
            remainder: RemainderPolicy::Drop,
            ..LoaderOptions::new(path, ["x"])
        };
        let columns = Columns::open(&options).unwrap();
        let size = WindowSize { block_rows: 10, window_blocks: 4 };
        let order = Order::new(ROWS, 1, Engine::ChunkWindows(size), RowSubset::All).unwrap();
        let epoch = order.epoch(0);
        let mut expected = Vec::new();
        epoch.append_rows(0..96, &mut expected);
        let windows = Arc::new(WindowPlan::shuffled(epoch.clone(), size, columns.block_bytes(10)));
        let plan = BatchPlan::new(&options, ROWS, 0).unwrap();
        let shared = Arc::new(SharedState::new(BufferPool::new(vec![64], 3, 3, false)));
        let scheduler = EpochScheduler::new(plan, Some(Arc::clone(&windows)), Vec::new());
        shared.lock().scheduler = Some(scheduler);
        let runner = TaskRunner {
            shared,
            columns: Arc::new(columns),
            epoch: Arc::new(epoch),
            windows: Some(windows),
        };
        (runner, expected)
    }

    #[test]
    fn the_consumer_alone_makes_every_batch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.h5");
        make(&path);
        let (runner, expected) = prepare(&path);
        let mut seen: Vec<u64> = Vec::new();
        loop {
            let (mut state, has_run) = runner.run_one(runner.shared.lock());
            let ready = (state.scheduler.as_mut()).and_then(EpochScheduler::take_ready);
            let is_done = !has_run && ready.is_none();
            if let Some(batch) = ready {
                let (numbers, _) = batch.buffers[0].bytes().as_chunks();
                seen.extend(numbers.iter().map(|number| u64::from_le_bytes(*number)));
                state.buffers.recycle_set(batch.buffers);
            }
            if is_done {
                break;
            }
        }
        assert_eq!(seen, expected);
    }

    #[test]
    fn an_epoch_that_fails_keeps_no_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.h5");
        make(&path);
        let (runner, _) = prepare(&path);
        for _ in 0..12 {
            drop(runner.run_one(runner.shared.lock()));
        }
        let mut state = runner.shared.lock();
        let mut scheduler = state.scheduler.take().unwrap();
        let batch = scheduler.take_ready().unwrap();
        state.buffers.recycle_set(batch.buffers);
        assert!(state.buffers.free_sets() < 3);
        while let NextTask::Run(task) = scheduler.next_task(&mut state.buffers) {
            let error = Error::io("the disk is gone");
            let batches = match task {
                Task::Fill { batches, .. } => batches,
                Task::Load { .. } => Vec::new(),
            };
            scheduler.on_failed(error, batches);
        }
        assert!(scheduler.failure().is_some());
        scheduler.finish(&mut state.buffers);
        assert_eq!(state.buffers.free_sets(), 3);
    }
}
