//! The work of writing, divided: several threads make and compress pieces, one writes them in order.
//!
//! The memory in flight is bounded by the number of pieces that may be ahead of the writer; their
//! buffers go round. The file is the same for any number of threads, because pieces are written in
//! their order and each is made of its number alone.

use std::fs::Metadata;
use std::ops::Range;
use std::path::Path;

use vramfit_core::{Bytes, Error, Result};

use super::content::{Compression, Content, Dataset, Storage};
use super::pipeline::{EncodedChunk, Pipeline};
use super::queue::{Queue, StopOnDrop};
use super::section::{Piece, PieceOrder, Section, UNEQUAL_CHUNKS, UNEQUAL_ROWS};
use super::writer::{WriteOptions, Writer};

/// Makes the rows of a piece: for each dataset, in its order, the bytes of the rows, appended to an
/// empty buffer. Called from several threads.
pub type Source<'a> = dyn Fn(Range<u64>, &mut [Vec<u8>]) -> Result<()> + Sync + 'a;

/// As [`Source`], where not all datasets have the same rows: those of the piece alone.
pub type PieceSource<'a> = dyn Fn(&Piece, &mut [Vec<u8>]) -> Result<()> + Sync + 'a;

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

/// How the rows of a file are produced whose datasets are written in sections.
pub struct SectionWrite<'a> {
    /// The order of the datasets, and how many of their rows make a piece.
    pub sections: &'a [Section],
    /// Maximum number of pieces that are produced but not written yet.
    pub ahead: usize,
    /// The file whose owner and permissions it gets; without one, the defaults of the process.
    pub like: Option<Metadata>,
    /// Makes a piece.
    pub source: &'a PieceSource<'a>,
    /// Checks the file at a temporary path before it gets its name; an error discards it.
    pub check: &'a mut dyn FnMut(&Path) -> Result<()>,
}

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
    let (rows, piece_rows) = pieces(&task.content)?;
    let section = Section { datasets: 0..task.content.datasets.len(), piece_rows };
    let mut sections = SectionWrite {
        sections: &[section],
        ahead: task.threads.max(1) * 2 + 1,
        like: None,
        source: &|piece, out| source(piece.rows.clone(), out),
        check: &mut |_| Ok(()),
    };
    write_sections(task, &mut sections, &mut |done, resumed| {
        progress(Progress {
            rows: (done * piece_rows).min(rows),
            resumed_rows: (resumed * piece_rows).min(rows),
            total: rows,
        });
    })
}

/// Produces, compresses and writes all pieces, has the file checked, and publishes it. Returns its size.
///
/// `progress` gets the number of pieces that are in the file, and how many of them were there before.
///
/// # Errors
/// Those of the source and of the check; `invalid-argument` for content that cannot be; `io`.
pub fn write_sections(
    task: WriteTask<'_>,
    sections: &mut SectionWrite<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Bytes> {
    task.content.check()?;
    let order = PieceOrder::new(&task.content, sections.sections)?;
    let datasets = task.content.datasets.clone();
    let threads = task.threads.max(1);
    // An invalid level is reported before threads are started.
    for dataset in &datasets {
        Pipeline::new(dataset)?;
    }
    let mut writer =
        Writer::open(task.path, task.content, &order, task.purpose, task.options, task.expected)?;
    if let Some(other) = &sections.like {
        writer.copy_ownership(other)?;
    }
    let first = writer.pieces();
    progress(first, first);

    let queue = Queue::new(first, order.pieces, sections.ahead.max(1));
    std::thread::scope(|scope| {
        // However this ends, the threads must not wait for more work.
        let _stop = StopOnDrop(&queue);
        for _ in 0..threads {
            let (queue, order, datasets) = (&queue, &order, &datasets);
            let source = sections.source;
            scope.spawn(move || {
                // The writer must not wait for a thread that panicked.
                let stop = StopOnDrop(queue);
                let mut raw = Vec::new();
                // Those of one section at a time: a compressor can need megabytes.
                let mut section = 0..0;
                let mut pipelines = Vec::new();
                while let Some((number, mut stored)) = queue.take() {
                    let piece = order.piece(number);
                    let mut make = || {
                        if section != piece.datasets {
                            pipelines = all(&datasets[piece.datasets.clone()])?;
                            section = piece.datasets.clone();
                        }
                        fill(&piece, source, &mut pipelines, &mut raw, &mut stored)
                    };
                    let made = make();
                    queue.put(number, made.map(|()| stored));
                }
                std::mem::forget(stop);
            });
        }
        for number in first..order.pieces {
            let stored = queue.next(number)?;
            let piece = order.piece(number);
            writer.add(piece.datasets.start, piece.rows.start, &stored)?;
            queue.recycle(stored);
            progress(number + 1, first);
        }
        Ok(())
    })?;
    writer.finish(sections.check)
}

/// Returns the bytes of a file besides its rows, and the maximum bytes of index per chunk.
pub fn overhead(content: &Content) -> (Bytes, Bytes) {
    let places =
        super::metadata_block::places(&Content { datasets: Vec::new(), ..content.clone() });
    // What describes a dataset takes less than two pages, unless its attributes do.
    let described = content.datasets.len() as u64 * 8192;
    (Bytes(places.chunks + described), Bytes(INDEX_BYTES))
}

/// Stores one stretch of rows of a dataset and returns how many bytes that makes.
///
/// # Errors
/// `invalid-argument` when the level is none of the compression's.
pub fn stored_bytes(dataset: &Dataset, mut rows: Vec<u8>) -> Result<Bytes> {
    let mut stored = EncodedChunk::default();
    Pipeline::new(dataset)?.store(&mut rows, &mut stored)?;
    Ok(Bytes(stored.bytes.len() as u64))
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
    let mut pipelines = all(&content.datasets)?;
    let (mut raw, mut stored) = (Vec::new(), Vec::new());
    let piece =
        Piece { number: 0, datasets: 0..content.datasets.len(), rows: 0..piece_rows.min(rows) };
    fill(
        &piece,
        &|piece, out| source(piece.rows.clone(), out),
        &mut pipelines,
        &mut raw,
        &mut stored,
    )?;
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
        return refuse(UNEQUAL_ROWS);
    }
    let mut chunk_rows = content.datasets.iter().filter_map(Dataset::chunk_rows);
    let piece = match chunk_rows.next() {
        Some(rows) if chunk_rows.all(|other| other == rows) => rows,
        Some(_) => return refuse(UNEQUAL_CHUNKS),
        None => {
            let row_bytes: u64 = content.datasets.iter().map(|d| d.row_bytes()).sum();
            (PIECE_BYTES / row_bytes.max(1)).clamp(1, rows.max(1))
        }
    };
    Ok((rows, piece.max(1)))
}

fn all(datasets: &[Dataset]) -> Result<Vec<Pipeline>> {
    datasets.iter().map(Pipeline::new).collect()
}

fn fill(
    piece: &Piece,
    source: &PieceSource<'_>,
    pipelines: &mut [Pipeline],
    raw: &mut Vec<Vec<u8>>,
    stored: &mut Vec<EncodedChunk>,
) -> Result<()> {
    raw.resize_with(pipelines.len(), Vec::new);
    stored.resize_with(pipelines.len(), EncodedChunk::default);
    raw.iter_mut().for_each(Vec::clear);
    source(piece, raw)?;
    for ((pipeline, raw), stored) in pipelines.iter_mut().zip(raw).zip(stored) {
        pipeline.store(raw, stored)?;
    }
    Ok(())
}
