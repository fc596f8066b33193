//! The work of writing, divided: several threads make and compress pieces, one writes them in order.
//!
//! The memory in flight is bounded by the number of pieces that may be ahead of the writer; their
//! buffers go round. The file is the same for any number of threads, because pieces are written in
//! their order and each is made of its number alone.

use std::ops::Range;
use std::path::Path;

use vramfit_base::{Bytes, Error, Result};

use super::content::{Compression, Content, Dataset, Storage};
use super::options::WriteOptions;
use super::pipeline::{EncodedChunk, Pipeline};
use super::queue::{Queue, StopOnDrop};
use super::writer::{Writer, piece};

/// Makes rows: for each dataset, in its order, their bytes, appended to an empty buffer. Called from
/// several threads.
pub type Source<'a> = dyn Fn(Range<u64>, &mut [Vec<u8>]) -> Result<()> + Sync + 'a;

/// A file to write.
#[derive(Clone, Debug)]
pub struct WriteTask<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Its content.
    pub content: Content,
    /// Identifies what is written, so that an attempt with other settings is not resumed.
    pub purpose: &'a str,
    /// How the file is created.
    pub options: WriteOptions,
    /// Number of threads that produce and compress rows.
    pub threads: usize,
    /// The maximum size of the file; this much disk space must be free.
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

/// Produces, compresses and writes all rows, and publishes the file. Returns its size. All
/// datasets have equally many rows, and chunks of equally many.
///
/// # Errors
/// Those of the source; `invalid-argument` for content that cannot be; `io`.
pub fn write(
    task: WriteTask<'_>,
    source: &Source<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Bytes> {
    let (all_rows, piece_rows) = pieces(&task.content)?;
    let threads = task.threads.max(1);
    let datasets = task.content.datasets.clone();
    // Made before there is a file, since a level that is none is refused here.
    let pipelines = (0..threads).map(|_| pipelines(&datasets)).collect::<Result<Vec<_>>>()?;
    let WriteTask { path, content, purpose, options, expected, .. } = task;
    let mut writer = Writer::open(path, content, piece_rows, purpose, options, expected)?;
    // Where there is nothing to write there is no piece.
    let is_empty = datasets.iter().all(|dataset| dataset.bytes() == 0);
    let count = if is_empty { 0 } else { all_rows.div_ceil(piece_rows) };
    let first = writer.pieces();
    let mut report = |done: u64| {
        progress(Progress {
            rows: (done * piece_rows).min(all_rows),
            resumed_rows: (first * piece_rows).min(all_rows),
            total: all_rows,
        });
    };
    report(first);

    let queue = Queue::new(first, count, threads * 2 + 1);
    std::thread::scope(|scope| {
        // However this ends, the threads must not wait for more work.
        let _stop = StopOnDrop(&queue);
        for mut pipelines in pipelines {
            let queue = &queue;
            scope.spawn(move || {
                // The writer must not wait for a thread that panicked.
                let stop = StopOnDrop(queue);
                let mut raw = Vec::new();
                while let Some((number, mut stored)) = queue.take() {
                    let rows = piece(number, piece_rows, all_rows);
                    let made = fill(rows, source, &mut pipelines, &mut raw, &mut stored);
                    queue.put(number, made.map(|()| stored));
                }
                std::mem::forget(stop);
            });
        }
        for number in first..count {
            let stored = queue.next(number)?;
            writer.add(number * piece_rows, &stored)?;
            queue.recycle(stored);
            report(number + 1);
        }
        Ok(())
    })?;
    writer.finish()
}

/// Bytes of index per chunk, with more dimensions than most datasets have.
const INDEX_BYTES: u64 = 96;

/// Estimates how large a file will be: exactly where nothing is compressed, else by its first piece, with
/// one part in twenty on top.
///
/// # Errors
/// Those of the source, and of [`write`].
pub fn estimate_file_size(content: &Content, source: &Source<'_>) -> Result<Bytes> {
    let (rows, piece_rows) = pieces(content)?;
    let mut pipelines = pipelines(&content.datasets)?;
    let (mut raw, mut stored) = (Vec::new(), Vec::new());
    fill(0..piece_rows.min(rows), source, &mut pipelines, &mut raw, &mut stored)?;
    let datasets = content.datasets.iter().zip(&stored);
    let sizes = datasets.map(|(dataset, first)| {
        let Storage::Chunked { compression, .. } = dataset.storage else {
            return dataset.bytes();
        };
        let bytes = first.bytes.len() as u64;
        let spare = match compression {
            Compression::None => 0,
            _ => bytes / 20,
        };
        dataset.chunks() * (bytes + spare + INDEX_BYTES)
    });
    let metadata_bytes = 1 << 16;
    Ok(Bytes(sizes.sum::<u64>() + metadata_bytes))
}

/// Checks the content, and returns the rows of the file and those of a piece.
fn pieces(content: &Content) -> Result<(u64, u64)> {
    let refuse = |why: &str| Err(Error::invalid_argument(why));
    let Some(first) = content.datasets.first() else {
        return refuse("a file needs at least one dataset");
    };
    content.check()?;
    let rows = first.rows();
    if content.datasets.iter().any(|one| one.rows() != rows) {
        return refuse("datasets that are written together must have the same number of rows");
    }
    let mut chunk_rows = content.datasets.iter().filter_map(Dataset::chunk_rows);
    let piece = match chunk_rows.next() {
        Some(rows) if chunk_rows.all(|other| other == rows) => rows,
        Some(_) => {
            return refuse("chunks that are written together must have the same number of rows");
        }
        None => {
            let row_bytes: u64 = content.datasets.iter().map(|d| d.row_bytes()).sum();
            (PIECE_BYTES / row_bytes.max(1)).clamp(1, rows.max(1))
        }
    };
    Ok((rows, piece.max(1)))
}

fn pipelines(datasets: &[Dataset]) -> Result<Vec<Pipeline>> {
    datasets.iter().map(Pipeline::new).collect()
}

fn fill(
    rows: Range<u64>,
    source: &Source<'_>,
    pipelines: &mut [Pipeline],
    raw: &mut Vec<Vec<u8>>,
    stored: &mut Vec<EncodedChunk>,
) -> Result<()> {
    raw.resize_with(pipelines.len(), Vec::new);
    stored.resize_with(pipelines.len(), EncodedChunk::default);
    raw.iter_mut().for_each(Vec::clear);
    source(rows, raw)?;
    for ((pipeline, raw), stored) in pipelines.iter_mut().zip(raw).zip(stored) {
        pipeline.store(raw, stored)?;
    }
    Ok(())
}
