//! Files whose rows say which they are, and what a loader makes of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use vramfit_base::{Bytes, Result};
use vramfit_data::load::{Batch, BatchPoll, Loader, LoaderOptions};
use vramfit_data::write::{
    Compression, Content, Dataset, Number, Storage, WriteOptions, WriteTask, write,
};

pub(crate) const ROWS: u64 = 1003;
/// Numbers of a row of `x`.
pub(crate) const WIDTH: u64 = 6;
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn gzip(rows: u64) -> Storage {
    Storage::Chunked { rows, compression: Compression::Gzip(1) }
}

/// Writes a file in which the numbers of row `r` of `x` are `r` times 10 and what follows, and `y` is `r`.
pub(crate) fn file(directory: &Path, x: Storage, y: Storage) -> PathBuf {
    file_of(directory, ROWS, WIDTH, x, y)
}

/// Writes a file whose rows are large enough to be read one by one.
pub(crate) fn wide_file(directory: &Path, rows: u64) -> PathBuf {
    let storage = Storage::Contiguous;
    file_of(directory, rows, 4096, storage, storage)
}

/// Writes such a file of this many rows, each of this many numbers.
pub(crate) fn file_of(directory: &Path, rows: u64, width: u64, x: Storage, y: Storage) -> PathBuf {
    let path = directory.join("rows.h5");
    let content = Content {
        datasets: vec![
            Dataset::new("x", Number::U32, vec![rows, width], x),
            Dataset::new("group/y", Number::I64, vec![rows], y),
        ],
        ..Content::default()
    };
    let task = WriteTask {
        path: &path,
        content,
        purpose: "a test",
        options: WriteOptions { force: true, resume: false, sync_every: Bytes(1 << 20) },
        threads: 1,
        expected: Bytes(0),
    };
    let source = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        for row in rows {
            for at in 0..width {
                out[0].extend((row as u32 * 10 + at as u32).to_le_bytes());
            }
            out[1].extend((row as i64).to_le_bytes());
        }
        Ok(())
    };
    write(task, &source, &mut |_| ()).expect("the file is written");
    path
}

pub(crate) fn request(file: &Path) -> LoaderOptions {
    LoaderOptions {
        batch_size: 32,
        budget: Bytes(400_000),
        seed: 7,
        threads: Some(3),
        poison: true,
        ..LoaderOptions::new(file, ["x", "group/y"])
    }
}

pub(crate) fn next(loader: &mut Loader) -> Result<Option<Batch>> {
    match loader.poll_batch(LONG, LONG)? {
        BatchPoll::Ready(filled) => Ok(Some(filled)),
        BatchPoll::Finished => Ok(None),
        BatchPoll::Pending { is_starved } => panic!("no batch in {LONG:?}; starved: {is_starved}"),
    }
}

/// Returns the rows of `y` in a batch, and checks that `x` has the same.
pub(crate) fn rows_of(filled: &Batch) -> Vec<u64> {
    let (y, _) = filled.columns[1].bytes().as_chunks::<8>();
    let (x, _) = filled.columns[0].bytes().as_chunks::<4>();
    let rows: Vec<u64> = y.iter().map(|it| u64::from_le_bytes(*it)).collect();
    let width = x.len() / rows.len();
    assert_eq!(x.len(), rows.len() * width);
    for (row, numbers) in rows.iter().zip(x.chunks(width)) {
        for (at, number) in numbers.iter().enumerate() {
            assert_eq!(u32::from_le_bytes(*number), *row as u32 * 10 + at as u32);
        }
    }
    rows
}

/// Returns the real rows of every batch from where the loader is to the end of the epoch.
pub(crate) fn rest(loader: &mut Loader) -> Vec<Vec<u64>> {
    let steps = loader.options().stacked_batches.unwrap_or(1) as usize;
    let mut batches = Vec::new();
    while let Some(filled) = next(loader).expect("the file is sound") {
        let rows = rows_of(&filled);
        for (rows, valid) in rows.chunks(rows.len() / steps).zip(&filled.valid) {
            let (real, repeated) = rows.split_at(*valid as usize);
            assert!(repeated.iter().all(|row| *row == repeated[0]));
            batches.push(real.to_vec());
        }
    }
    batches
}

pub(crate) fn epoch(request: LoaderOptions, epoch: u64) -> Vec<Vec<u64>> {
    let mut loader = Loader::open(request).expect("the request can be met");
    loader.start(epoch, 0).expect("an epoch begins");
    rest(&mut loader)
}

/// Returns the least budget that a request is not refused with.
pub(crate) fn least(request: &LoaderOptions) -> Bytes {
    let request = LoaderOptions { budget: Bytes(0), ..request.clone() };
    let error = Loader::open(request).expect_err("nothing is read in no memory");
    let hint = error.hint_text().expect("it says what would do");
    let (_, bytes) = hint.split_once('(').expect("in bytes, too");
    let (bytes, _) = bytes.split_once(' ').expect("with the word");
    Bytes(bytes.parse().expect("a number"))
}

pub(crate) fn every_row() -> Vec<u64> {
    (0..ROWS).collect()
}

pub(crate) fn sorted(batches: &[Vec<u64>]) -> Vec<u64> {
    let mut rows = batches.concat();
    rows.sort_unstable();
    rows
}

pub(crate) fn storages() -> [(Storage, Storage); 4] {
    [
        (Storage::Contiguous, Storage::Contiguous),
        (gzip(10), gzip(10)),
        (Storage::Contiguous, gzip(30)),
        (gzip(17), Storage::Contiguous),
    ]
}
