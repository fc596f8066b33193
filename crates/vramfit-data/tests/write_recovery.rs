//! A file that is written in several attempts is the file that one attempt writes, and nothing is seen
//! under its name before it is whole.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use vramfit_base::{Bytes, Error, ErrorKind, Result};
use vramfit_data::write::{
    Compression, Content, Dataset, Number, Progress, Source, Storage, WriteOptions, WriteTask,
    write,
};

const ROWS: u64 = 1003;

fn content(storage: [Storage; 2]) -> Content {
    let dataset = |path: &str, number, rest: &[u64], storage| {
        Dataset::new(path, number, [&[ROWS], rest].concat(), storage)
    };
    Content {
        datasets: vec![
            dataset("x", Number::U32, &[50], storage[0]),
            dataset("deep/y", Number::U8, &[], storage[1]),
        ],
        ..Content::default()
    }
}

fn gzip(rows: u64) -> Storage {
    Storage::Chunked { rows, compression: Compression::Gzip(1) }
}

fn rows(rows: std::ops::Range<u64>, out: &mut [Vec<u8>]) {
    for row in rows {
        for at in 0..50 {
            out[0].extend((row as u32 * 50 + at).to_le_bytes());
        }
        out[1].push(row as u8);
    }
}

const AGAIN: WriteOptions = WriteOptions { force: false, resume: true, sync_every: Bytes(3000) };

fn attempt(
    path: &Path,
    content: &Content,
    purpose: &str,
    options: WriteOptions,
    threads: usize,
    source: &Source<'_>,
) -> Result<Vec<Progress>> {
    let mut seen = Vec::new();
    let task =
        WriteTask { path, content: content.clone(), purpose, options, threads, expected: Bytes(0) };
    write(task, source, &mut |progress| seen.push(progress))?;
    Ok(seen)
}

/// Writes a file whose source fails after this many pieces.
fn cut_short(path: &Path, content: &Content, options: WriteOptions, pieces: u64) -> Error {
    let left = AtomicU64::new(pieces);
    let source = |range: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        let had = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        had.map_err(|_| Error::io("cut short by a test"))?;
        rows(range, out);
        Ok(())
    };
    attempt(path, content, "test", options, 1, &source).expect_err("the source fails")
}

fn whole(range: std::ops::Range<u64>, out: &mut [Vec<u8>]) -> Result<()> {
    rows(range, out);
    Ok(())
}

#[test]
fn attempts_add_up_to_the_file_that_one_writes() {
    for storage in [[gzip(10), gzip(10)], [Storage::Contiguous, gzip(10)]] {
        let folder = tempfile::tempdir().unwrap();
        let content = content(storage);
        let [once, often] = ["once.h5", "often.h5"].map(|name| folder.path().join(name));
        attempt(&once, &content, "test", WriteOptions::default(), 3, &whole).unwrap();

        for pieces in [0, 7, 40, 1, 30] {
            let error = cut_short(&often, &content, AGAIN, pieces);
            assert_eq!(error.message(), "cut short by a test");
            assert!(!often.exists());
        }
        let seen = attempt(&often, &content, "test", AGAIN, 2, &whole).unwrap();
        assert!(seen[0].resumed_rows > 0 && seen[0].rows == seen[0].resumed_rows);
        assert_eq!(seen.last().map(|progress| progress.rows), Some(ROWS));

        assert!(std::fs::read(&often).unwrap() == std::fs::read(&once).unwrap());
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "nothing hidden is left");
    }
}

#[test]
fn the_file_is_the_same_for_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let content = content([gzip(7), gzip(7)]);
    let mut files = Vec::new();
    for threads in [1, 2, 5] {
        let path = folder.path().join(format!("{threads}.h5"));
        let options = WriteOptions::default();
        attempt(&path, &content, "test", options, threads, &whole).unwrap();
        files.push(std::fs::read(path).unwrap());
    }
    assert!(files[0] == files[1] && files[1] == files[2]);
}

#[test]
fn an_unfinished_file_is_neither_taken_over_nor_lost_by_accident() {
    let folder = tempfile::tempdir().unwrap();
    let content = content([gzip(10), gzip(10)]);
    let path = folder.path().join("rows.h5");
    cut_short(&path, &content, AGAIN, 20);
    let with = |purpose, options| attempt(&path, &content, purpose, options, 1, &whole);

    let error = with("test", WriteOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().starts_with("an earlier attempt left"), "{error}");
    let error = with("other settings", AGAIN).unwrap_err();
    assert!(error.message().ends_with("was written with different options"), "{error}");

    let force = WriteOptions { force: true, ..WriteOptions::default() };
    assert_eq!(with("other settings", force).unwrap()[0].resumed_rows, 0);
    let error = with("test", AGAIN).unwrap_err();
    assert!(error.message().ends_with("exists and will not be overwritten"), "{error}");
}

#[test]
fn a_file_that_cannot_fit_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.h5");
    let task = WriteTask {
        path: &path,
        content: content([gzip(10), gzip(10)]),
        purpose: "test",
        options: WriteOptions::default(),
        threads: 1,
        expected: Bytes(1 << 59),
    };
    let error = write(task, &whole, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let needed = "needs 512.0 PiB (576460752303423488 bytes), but the disk has ";
    assert!(error.message().contains(needed), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_second_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.h5");
    let content = content([gzip(10), gzip(10)]);
    let inner = |range: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        if range.start == 0 {
            let error = attempt(&path, &content, "test", AGAIN, 1, &whole).unwrap_err();
            assert!(error.message().starts_with("another process is writing `"), "{error}");
        }
        whole(range, out)
    };
    attempt(&path, &content, "test", WriteOptions::default(), 1, &inner).unwrap();
}

#[test]
fn content_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.h5");
    let refused = |change: fn(&mut Content)| {
        let mut content = content([gzip(10), gzip(10)]);
        change(&mut content);
        let options = WriteOptions::default();
        let error = attempt(&path, &content, "test", options, 1, &whole).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    assert_eq!(refused(|c| *c = Content::default()), "a file needs at least one dataset");
    assert_eq!(
        refused(|c| c.datasets[1].path = "x/y".into()),
        "two datasets have the same name `x/y`"
    );
    assert_eq!(
        refused(|c| c.datasets[0].path = "a//b".into()),
        "dataset `a//b` cannot be written: its path has an empty component"
    );
    assert_eq!(
        refused(|c| c.datasets[0].shape = vec![u64::MAX, 9]),
        "dataset `x` cannot be written: its size exceeds the limit of 2^60 bytes"
    );
    assert_eq!(
        refused(|c| c.datasets[0].storage = gzip(ROWS + 1)),
        "dataset `x` cannot be written: chunks of 1004 rows do not fit its 1003 rows"
    );
    assert_eq!(
        refused(|c| c.datasets[0].shape = vec![ROWS, 1 << 30]),
        "a chunk of 10 rows of `x` has 40.0 GiB, but HDF5 limits chunks to less than 4.0 GiB"
    );
    assert_eq!(
        refused(|c| c.datasets[1].storage = gzip(11)),
        "chunks that are written together must have the same number of rows"
    );
    assert_eq!(
        refused(|c| c.datasets[1].shape = vec![5]),
        "dataset `deep/y` cannot be written: chunks of 10 rows do not fit its 5 rows"
    );
    assert!(!path.exists());
}
