//! The work of writing, divided: several threads make and compress pieces, one writes them in order.
//!
//! The memory in flight is bounded by the number of pieces that may be ahead of the writer; their
//! buffers go round. The file is the same for any number of threads, because pieces are written in
//! their order and each is made of its number alone.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::content::{Compression, Content, Storage};
use super::pipeline::Pipeline;
use super::writer::{Manner, Writer};

/// Makes the rows of a piece: for each dataset, in its order, the bytes of the rows, appended to an
/// empty buffer. Called from several threads.
pub type Source<'a> = dyn Fn(Range<u64>, &mut [Vec<u8>]) -> Result<()> + Sync + 'a;

/// What is being written.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Where the file is to be.
    pub path: &'a Path,
    /// What it holds. All datasets have equally many rows, and chunks of equally many.
    pub content: Content,
    /// Says what is written, so that an attempt with other settings is not gone on with.
    pub purpose: &'a str,
    /// How it is begun.
    pub manner: Manner,
    /// Threads that make and compress.
    pub threads: usize,
    /// At most how large the file can become; as much must be free.
    pub expected: Bytes,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rows that are in the file.
    pub rows: u64,
    /// Rows that were there from an earlier attempt.
    pub resumed_rows: u64,
    /// All rows.
    pub total: u64,
}

/// Rows of a piece where nothing is in chunks: about this many bytes are written at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Makes, compresses and writes all rows, and puts the file in its place. Returns its size.
///
/// # Errors
/// Those of the source; `invalid-argument` for content that cannot be; `io`.
pub fn write(
    job: Job<'_>,
    source: &Source<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Bytes> {
    let (rows, piece_rows) = pieces(&job.content)?;
    let datasets = job.content.datasets.clone();
    let threads = job.threads.max(1);
    let mut writer = Writer::open(job.path, job.content, job.purpose, job.manner, job.expected)?;
    let pieces = rows.div_ceil(piece_rows);
    let first = writer.pieces();
    let resumed_rows = (first * piece_rows).min(rows);
    let shown = |done: u64| Progress {
        rows: (done * piece_rows).min(rows),
        resumed_rows,
        total: rows,
    };
    progress(shown(first));

    let queue = Queue::new(first, pieces, threads * 2 + 1);
    // Pipelines are made here so that a level that is none is told before threads are.
    let pipelines = (0..threads)
        .map(|_| datasets.iter().map(Pipeline::new).collect())
        .collect::<Result<Vec<Vec<Pipeline>>>>()?;
    std::thread::scope(|scope| {
        // However this ends, the threads must not wait for more work.
        let _stop = StopOnDrop(&queue);
        for mut pipelines in pipelines {
            let queue = &queue;
            scope.spawn(move || {
                let _stop = StopOnPanic(queue);
                let mut raw = vec![Vec::new(); pipelines.len()];
                while let Some((piece, mut stored)) = queue.take() {
                    let rows = piece * piece_rows..((piece + 1) * piece_rows).min(rows);
                    let made = fill(rows, source, &mut pipelines, &mut raw, &mut stored);
                    queue.give(piece, made.map(|()| stored));
                }
            });
        }
        for piece in first..pieces {
            let stored = queue.next(piece)?;
            writer.add(piece * piece_rows, &stored)?;
            queue.recycle(stored);
            progress(shown(piece + 1));
        }
        Ok(())
    })?;
    writer.finish()
}

/// Estimates how large a file will be: exactly where nothing is compressed, else by its first piece, with
/// one part in twenty on top.
///
/// # Errors
/// Those of the source, and of [`write`].
pub fn estimate(content: &Content, source: &Source<'_>) -> Result<Bytes> {
    /// What the index takes of each chunk, with more dimensions than most have.
    const INDEX_BYTES: u64 = 96;
    let (rows, piece_rows) = pieces(content)?;
    let mut pipelines = content
        .datasets
        .iter()
        .map(Pipeline::new)
        .collect::<Result<Vec<_>>>()?;
    let mut raw = vec![Vec::new(); pipelines.len()];
    let mut stored = Vec::new();
    fill(
        0..piece_rows.min(rows),
        source,
        &mut pipelines,
        &mut raw,
        &mut stored,
    )?;
    let sizes = content
        .datasets
        .iter()
        .zip(&stored)
        .map(|(dataset, first)| {
            let chunks = dataset.chunks();
            match dataset.storage {
                Storage::Contiguous => dataset.bytes(),
                Storage::Chunked {
                    compression: Compression::None,
                    ..
                } => chunks * (first.len() as u64 + INDEX_BYTES),
                Storage::Chunked { .. } => {
                    chunks * (first.len() as u64 + first.len() as u64 / 20 + INDEX_BYTES)
                }
            }
        });
    let front = 1 << 16;
    Ok(Bytes(sizes.sum::<u64>() + front))
}

/// Checks the content, and returns the rows of the file and those of a piece.
fn pieces(content: &Content) -> Result<(u64, u64)> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::InvalidArgument, why));
    let Some(first) = content.datasets.first() else {
        return refuse("a file without datasets holds no rows");
    };
    content.check()?;
    let rows = first.rows();
    if content
        .datasets
        .iter()
        .any(|dataset| dataset.rows() != rows)
    {
        return refuse("datasets that are written together need equally many rows");
    }
    let mut chunk_rows = content
        .datasets
        .iter()
        .filter_map(|dataset| match dataset.storage {
            Storage::Chunked { rows, .. } => Some(rows),
            Storage::Contiguous => None,
        });
    let piece = match chunk_rows.next() {
        Some(rows) if chunk_rows.all(|other| other == rows) => rows,
        Some(_) => return refuse("chunks that are written together need equally many rows"),
        None => {
            let row_bytes: u64 = content.datasets.iter().map(|d| d.row_bytes()).sum();
            (PIECE_BYTES / row_bytes.max(1)).clamp(1, rows.max(1))
        }
    };
    Ok((rows, piece.max(1)))
}

fn fill(
    rows: Range<u64>,
    source: &Source<'_>,
    pipelines: &mut [Pipeline],
    raw: &mut [Vec<u8>],
    stored: &mut Vec<Vec<u8>>,
) -> Result<()> {
    stored.resize_with(raw.len(), Vec::new);
    raw.iter_mut().for_each(Vec::clear);
    source(rows, raw)?;
    for ((pipeline, raw), stored) in pipelines.iter_mut().zip(raw).zip(stored) {
        pipeline.store(raw, stored)?;
    }
    Ok(())
}

/// Pieces between the threads that make them and the one that writes them.
struct Queue {
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
    ready: VecDeque<Option<Result<Vec<Vec<u8>>>>>,
    spare: Vec<Vec<Vec<u8>>>,
    stopped: bool,
}

impl Queue {
    fn new(first: u64, end: u64, window: usize) -> Self {
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
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, and returns the next piece to make, with buffers; `None` when there is no more.
    fn take(&self) -> Option<(u64, Vec<Vec<u8>>)> {
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

    fn give(&self, piece: u64, made: Result<Vec<Vec<u8>>>) {
        let mut state = self.lock();
        let slot = (piece - state.written) as usize;
        state.ready[slot] = Some(made);
        self.changed.notify_all();
    }

    /// Waits for a piece.
    fn next(&self, piece: u64) -> Result<Vec<Vec<u8>>> {
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
                    "a thread that makes rows has panicked",
                ));
            }
            state = self.wait(state);
        }
    }

    fn recycle(&self, buffers: Vec<Vec<u8>>) {
        self.lock().spare.push(buffers);
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

struct StopOnDrop<'a>(&'a Queue);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

struct StopOnPanic<'a>(&'a Queue);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}
