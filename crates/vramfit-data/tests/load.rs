//! The loader: every row once an epoch, in one order for any number of processes, resumed anywhere, in a
//! budget. Rows of the file say which they are, so that a batch can be checked by itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use vramfit_core::{Bytes, ErrorKind, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::load::{ColumnRequest, Filled, Loader, PartRequest, Request, Set, Turn};
use vramfit_data::order::{Last, Manner as SplitManner, State, World};
use vramfit_data::write::{Compression, Content, Dataset, Job, Manner, Number, Storage, write};

const ROWS: u64 = 1003;
/// Numbers of a row of `x`.
const WIDTH: u64 = 6;
const LONG: Duration = Duration::from_secs(20);

fn gzip(rows: u64) -> Storage {
    Storage::Chunked {
        rows,
        compression: Compression::Gzip(1),
    }
}

/// Writes a file in which the numbers of row `r` of `x` are `r` times 10 and what follows, and `y` is `r`.
fn file(directory: &Path, x: Storage, y: Storage) -> PathBuf {
    let path = directory.join("rows.h5");
    let content = Content {
        datasets: vec![
            Dataset::new("x", Number::U32, vec![ROWS, WIDTH], x),
            Dataset::new("group/y", Number::I64, vec![ROWS], y),
        ],
        ..Content::default()
    };
    let job = Job {
        path: &path,
        content,
        purpose: "a test",
        manner: Manner {
            force: true,
            resume: false,
            safe_every: Bytes(1 << 20),
            once: false,
        },
        threads: 1,
        expected: Bytes(0),
    };
    let rows = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        for row in rows {
            for at in 0..WIDTH {
                out[0].extend((row as u32 * 10 + at as u32).to_le_bytes());
            }
            out[1].extend((row as i64).to_le_bytes());
        }
        Ok(())
    };
    write(job, &rows, &mut |_| ()).expect("the file is written");
    path
}

fn column(dataset: &str) -> ColumnRequest {
    ColumnRequest {
        dataset: dataset.into(),
        field: None,
        to: None,
    }
}

fn request(file: &Path) -> Request {
    Request {
        file: file.into(),
        columns: vec![column("x"), column("group/y")],
        batch_size: 32,
        super_batch: None,
        budget: Bytes(400_000),
        seed: 7,
        shuffle: true,
        last: Last::Pad,
        part: None,
        world: World::ALONE,
        threads: Some(3),
        floats: None,
        narrow: false,
        poison: true,
    }
}

fn next(loader: &mut Loader) -> Result<Option<Filled>> {
    match loader.wait(LONG)? {
        Turn::Batch(filled) => Ok(Some(filled)),
        Turn::End => Ok(None),
        Turn::Waiting { starved } => panic!("no batch in {LONG:?}; starved: {starved}"),
    }
}

/// Returns the rows of `y` in a batch, and checks that `x` has the same.
fn rows_of(filled: &Filled) -> Vec<u64> {
    let (y, _) = filled.columns[1].bytes().as_chunks::<8>();
    let (x, _) = filled.columns[0].bytes().as_chunks::<4>();
    let rows: Vec<u64> = y.iter().map(|it| u64::from_le_bytes(*it)).collect();
    assert_eq!(x.len() as u64, rows.len() as u64 * WIDTH);
    for (at, number) in x.iter().enumerate() {
        let expected = rows[at / WIDTH as usize] as u32 * 10 + (at as u64 % WIDTH) as u32;
        assert_eq!(u32::from_le_bytes(*number), expected);
    }
    rows
}

/// Returns the real rows of every batch from where the loader is to the end of the epoch.
fn rest(loader: &mut Loader) -> Vec<Vec<u64>> {
    let steps = loader.request().super_batch.unwrap_or(1) as usize;
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

fn epoch(request: Request, epoch: u64) -> Vec<Vec<u64>> {
    let mut loader = Loader::open(request).expect("the request can be met");
    loader.start(epoch, 0).expect("an epoch begins");
    rest(&mut loader)
}

fn every_row() -> Vec<u64> {
    (0..ROWS).collect()
}

fn sorted(batches: &[Vec<u64>]) -> Vec<u64> {
    let mut rows = batches.concat();
    rows.sort_unstable();
    rows
}

fn storages() -> [(Storage, Storage); 4] {
    [
        (Storage::Contiguous, Storage::Contiguous),
        (gzip(10), gzip(10)),
        (Storage::Contiguous, gzip(30)),
        (gzip(17), Storage::Contiguous),
    ]
}

#[test]
fn t1_every_row_comes_once_an_epoch_whatever_the_layout() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        for shuffle in [true, false] {
            let wanted = Request {
                shuffle,
                ..request(&path)
            };
            let (first, second) = (epoch(wanted.clone(), 0), epoch(wanted, 1));
            assert_eq!(sorted(&first), every_row(), "{x:?} {y:?} {shuffle}");
            assert_eq!(sorted(&second), every_row());
            assert_eq!(first == second, !shuffle, "epochs differ if shuffled");
            assert_eq!(first.concat() == every_row(), !shuffle);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn t1_all_processes_together_read_the_order_of_one(
        storage in 0_usize..4,
        shuffle: bool,
        pad: bool,
        share in 1_u64..40,
        processes in 1_u64..5,
        steps in proptest::option::of(1_u64..5),
        budget in 100_000_u64..500_000,
        threads in 1_usize..4,
        seed: u64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (x, y) = storages()[storage];
        let path = file(directory.path(), x, y);
        let alone = Request {
            batch_size: share * processes,
            super_batch: steps,
            shuffle,
            seed,
            last: if pad { Last::Pad } else { Last::Drop },
            budget: Bytes(budget),
            threads: Some(threads),
            ..request(&path)
        };
        let Ok(loader) = Loader::open(alone.clone()) else { return Ok(()) };
        drop(loader);
        let expected = epoch(alone.clone(), 3);
        let handed_out = expected.concat().len() as u64;
        if pad {
            prop_assert_eq!(sorted(&expected), every_row());
        } else {
            let size = alone.batch_size * steps.unwrap_or(1);
            prop_assert_eq!(handed_out, ROWS / size * size);
        }
        let mut shares = Vec::new();
        for rank in 0..processes {
            let world = World { rank, processes };
            shares.push(epoch(Request { world, ..alone.clone() }, 3));
        }
        for (number, batch) in expected.iter().enumerate() {
            let together: Vec<u64> = shares.iter().flat_map(|rank| rank[number].clone()).collect();
            prop_assert_eq!(&together, batch);
        }
    }

    #[test]
    fn t1_going_on_anywhere_is_the_stream_that_was_not_interrupted(
        storage in 0_usize..4,
        shuffle: bool,
        stop_after in 0_usize..30,
        seed: u64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (x, y) = storages()[storage];
        let path = file(directory.path(), x, y);
        let wanted = Request { shuffle, seed, ..request(&path) };
        let expected = epoch(wanted.clone(), 0);

        let mut loader = Loader::open(wanted.clone()).unwrap();
        loader.start(0, 0).unwrap();
        for _ in 0..stop_after {
            next(&mut loader).unwrap();
        }
        let state = loader.state().to_json();
        prop_assert!(state.len() <= 1024, "{}", state.len());
        drop(loader);

        // With another budget, other threads, in stacks: the order is the one that was begun.
        let mut loader = Loader::open(Request {
            budget: Bytes(500_000),
            threads: Some(1),
            ..wanted
        }).unwrap();
        let state = State::parse_json(&state).unwrap();
        loader.restore(&state).unwrap();
        loader.start(state.epoch, state.position).unwrap();
        prop_assert_eq!(rest(&mut loader), &expected[stop_after..]);
        prop_assert_eq!(loader.position(), (1, 0));
    }
}

#[test]
fn the_two_sets_of_a_split_are_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        let mut rows = Vec::new();
        for set in [Set::Train, Set::Validation] {
            let part = PartRequest {
                set,
                share: 0.1,
                manner: SplitManner::Spread,
                seed: 1,
            };
            let batches = epoch(
                Request {
                    part: Some(part),
                    ..request(&path)
                },
                0,
            );
            rows.extend(batches);
        }
        assert_eq!(sorted(&rows), every_row());
    }
}

#[test]
fn t2_a_budget_that_is_too_small_is_refused_with_the_one_that_does() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        let with = |budget| {
            Loader::open(Request {
                budget: Bytes(budget),
                ..request(&path)
            })
        };
        let error = with(5_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let hint = error.hint_text().unwrap();
        let bytes = hint.split_once('(').unwrap().1.split(' ').next().unwrap();
        let enough: u64 = bytes.parse().unwrap();
        assert_eq!(epoch_rows(with(enough).unwrap()), every_row(), "{hint}");
        assert!(with(enough - 200).is_err(), "{hint} is not the least");
    }
}

fn epoch_rows(mut loader: Loader) -> Vec<u64> {
    let plan = loader.plan().clone();
    let used = plan.pool_bytes
        + plan.scratch_bytes
        + plan.index_bytes
        + plan.batch_bytes * plan.sets as u64;
    assert!(used <= plan.budget.0, "{plan:?}");
    loader.start(0, 0).expect("an epoch begins");
    let rows = rest(&mut loader);
    let made = loader.stats().expect("it is here").buffer_bytes;
    // Each buffer has up to 64 bytes more, to begin at a boundary.
    assert!(made <= (plan.batch_bytes + 128) * plan.sets as u64);
    sorted(&rows)
}

#[test]
fn t1_memory_is_not_used_again_before_it_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let mut loader = Loader::open(request(&path)).unwrap();
    loader.start(0, 0).unwrap();
    let mut held = Vec::new();
    loop {
        match loader.wait(Duration::from_millis(500)).unwrap() {
            Turn::Batch(filled) => {
                let copy: Vec<Vec<u8>> =
                    filled.columns.iter().map(|c| c.bytes().to_vec()).collect();
                held.push((filled, copy));
            }
            Turn::Waiting { starved } if starved => break,
            other => panic!("{other:?} after {} batches", held.len()),
        }
    }
    assert_eq!(held.len(), loader.plan().sets);
    // One by one they are let go, and those behind come into their memory; the others stay.
    while held.len() > 1 {
        held.remove(0);
        drop(next(&mut loader).unwrap());
        for (filled, copy) in &held {
            for (now, then) in filled.columns.iter().zip(copy) {
                assert!(now.bytes() == then, "a batch that is held was changed");
            }
        }
    }
    // Also when the loader is gone.
    drop(loader);
    let (last, copy) = held.pop().unwrap();
    assert!(last.columns[0].bytes() == copy[0]);
}

#[test]
fn a_file_that_changes_meanwhile_is_an_error_and_not_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        let mut loader = Loader::open(request(&path)).unwrap();
        loader.start(0, 0).unwrap();
        drop(next(&mut loader).unwrap());
        let state = loader.state();
        let whole = std::fs::metadata(&path).unwrap().len();
        let open = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        open.set_len(whole / 2).unwrap();
        // What was read before comes first, and the next epoch fails in any case.
        let failed = loop {
            match next(&mut loader) {
                Ok(Some(_)) => {}
                Ok(None) => break loader.start(1, 0).unwrap_err(),
                Err(error) => break error,
            }
        };
        assert_eq!(failed.kind(), ErrorKind::FileChanged, "{failed}");
        drop(loader);

        file(directory.path(), y, x);
        let mut other = Loader::open(request(&path)).unwrap();
        let error = other.restore(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileChanged);
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let refused = |change: fn(&mut Request)| {
        let mut wanted = request(&path);
        change(&mut wanted);
        let error = Loader::open(wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error
            .to_string()
            .replace(&path.display().to_string(), "FILE");
        (text, error.hint_text().unwrap_or_default().to_owned())
    };
    let (text, hint) = refused(|it| it.columns = vec![column("group/z")]);
    assert_eq!(text, "`FILE` has no `group/z`: there is no `z` on the way");
    assert_eq!(hint, "did you mean `group/y`?");
    let (text, _) = refused(|it| it.columns = vec![column("x"), column("x")]);
    assert_eq!(text, "`x` is named twice");
    let (text, _) = refused(|it| {
        it.batch_size = 2000;
        it.budget = Bytes(4 << 20);
        it.last = Last::Drop;
    });
    assert!(text.starts_with("a batch of 2000 rows is larger than the 1003"));
    let (text, _) = refused(|it| it.batch_size = 0);
    assert_eq!(text, "a batch of 0 rows holds nothing");
    let (text, hint) = refused(|it| {
        it.world = World {
            rank: 0,
            processes: 3,
        }
    });
    assert!(text.contains("cannot be divided equally"), "{text}");
    assert_eq!(hint, "take a batch of 33 rows");
    let (text, _) = refused(|it| {
        it.super_batch = Some(40);
        it.budget = Bytes(4 << 20);
        it.last = Last::Drop;
    });
    assert!(
        text.starts_with("a stack of 40 batches of 32 rows"),
        "{text}"
    );
}

#[test]
fn numbers_of_64_bits_are_narrowed_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let loader = Loader::open(Request {
        narrow: true,
        ..request(&path)
    })
    .unwrap();
    assert_eq!(loader.columns()[1].rows().scalar(), Scalar::Int32);
    assert_eq!(loader.plan().conversions, ["`group/y` from int64 to int32"]);
    assert!(
        loader
            .plan()
            .to_text()
            .contains("types: `group/y` from int64 to int32")
    );
}

#[test]
fn the_order_is_the_same_on_machines_with_other_processors() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let with = |threads| {
        let wanted = Request {
            threads: Some(threads),
            budget: Bytes(60_000),
            ..request(&path)
        };
        epoch(wanted, 0)
    };
    assert_eq!(with(1), with(16));
}
