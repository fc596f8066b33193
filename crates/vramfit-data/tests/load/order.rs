//! Every row once an epoch, in one order for any number of processes, resumed anywhere.

use proptest::prelude::*;
use vramfit_base::Bytes;
use vramfit_data::load::{Loader, LoaderOptions, SplitOptions, SplitSet};
use vramfit_data::order::{LoaderState, RemainderPolicy, ShardOptions, SplitMode};

use super::files::*;

#[test]
fn t1_every_row_comes_once_an_epoch_whatever_the_layout() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        for shuffle in [true, false] {
            let wanted = LoaderOptions { shuffle, ..request(&path) };
            let (first, second) = (epoch(wanted.clone(), 0), epoch(wanted, 1));
            assert_eq!(sorted(&first), every_row(), "{x:?} {y:?} {shuffle}");
            assert_eq!(sorted(&second), every_row());
            assert_eq!(first == second, !shuffle, "epochs differ if shuffled");
            assert_eq!(first.concat() == every_row(), !shuffle);
        }
    }
}

#[test]
fn the_order_is_the_same_where_the_consumer_helps() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        for shuffle in [true, false] {
            let with = |threads| LoaderOptions { threads, shuffle, ..request(&path) };
            let helped = Loader::open(with(None)).unwrap().plan().reads_inline;
            let alone = Loader::open(with(Some(1))).unwrap().plan().reads_inline;
            assert!(helped && !alone, "{x:?} {y:?}");
            assert_eq!(epoch(with(None), 1), epoch(with(Some(1)), 1));
        }
    }
}

/// Every batch size, divided among 1, 2, 4 and 8 processes, in every engine, in as many windows as can be.
#[test]
fn t1_every_row_comes_once_in_batches_of_every_size() {
    const ROWS: u64 = 61;
    let directory = tempfile::tempdir().unwrap();
    let every_row: Vec<u64> = (0..ROWS).collect();
    let mut engines = Vec::new();
    for (number, (x, y)) in storages().into_iter().enumerate() {
        let folder = directory.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        engines.push(file_of(&folder, ROWS, WIDTH, x, y));
    }
    engines.push(wide_file(directory.path(), ROWS));
    let mut seen = Vec::new();
    for path in &engines {
        for shuffle in [true, false] {
            for batch_size in 1..=ROWS + 3 {
                let mut alone =
                    LoaderOptions { batch_size, shuffle, threads: Some(1), ..request(path) };
                alone.budget = least(&alone);
                let loader = Loader::open(alone.clone()).unwrap();
                seen.push(loader.plan().choice.engine.name());
                let expected = epoch(alone.clone(), 0);
                assert_eq!(sorted(&expected), every_row, "{alone:?}");
                for processes in [2, 4, 8].into_iter().filter(|n| batch_size % n == 0) {
                    let together = of_all_processes(&alone, processes, 0);
                    assert_eq!(together, expected, "{processes}");
                }
            }
        }
    }
    for engine in ["global shuffle", "block windows", "chunk windows", "sequential"] {
        assert!(seen.contains(&engine), "{engine} was not tried");
    }
}

/// Returns the batches of an epoch, put together from those of this many processes.
fn of_all_processes(alone: &LoaderOptions, count: u64, number: u64) -> Vec<Vec<u64>> {
    let mut together: Vec<Vec<u64>> = Vec::new();
    for index in 0..count {
        let mut one = alone.clone();
        one.shard = ShardOptions { index, count };
        let share = epoch(one, number);
        together.resize(share.len(), Vec::new());
        for (batch, mine) in together.iter_mut().zip(share) {
            batch.extend(mine);
        }
    }
    together
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn t1_all_processes_together_read_the_order_of_one(
        storage in 0_usize..4,
        shuffle: bool,
        pad: bool,
        share in 1_u64..40,
        count in 1_u64..5,
        steps in proptest::option::of(1_u64..5),
        budget in 100_000_u64..500_000,
        threads in 1_usize..4,
        seed: u64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (x, y) = storages()[storage];
        let path = file(directory.path(), x, y);
        let alone = LoaderOptions {
            batch_size: share * count,
            stacked_batches: steps,
            shuffle,
            seed,
            remainder: if pad { RemainderPolicy::Pad } else { RemainderPolicy::Drop },
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
        prop_assert_eq!(of_all_processes(&alone, count, 3), expected);
    }

    #[test]
    fn t1_going_on_anywhere_is_the_stream_that_was_not_interrupted(
        storage in 0_usize..5,
        shuffle: bool,
        at in 0.0_f64..1.0,
        share in 1_u64..9,
        count in prop::sample::select(vec![1_u64, 2, 4, 8]),
        more in 1_u64..8,
        seed: u64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = match storages().get(storage) {
            Some((x, y)) => file(directory.path(), *x, *y),
            None => wide_file(directory.path(), 203),
        };
        let mut wanted = LoaderOptions { shuffle, seed, ..request(&path) };
        wanted.budget = Bytes(least(&wanted).0 * 5 / 4);
        let whole = [epoch(wanted.clone(), 0), epoch(wanted.clone(), 1)];
        let stop_after = (whole[0].len() as f64 * at) as usize;

        let mut loader = Loader::open(wanted.clone()).unwrap();
        loader.start(0, 0).unwrap();
        for _ in 0..stop_after {
            next(&mut loader).unwrap();
        }
        let state = loader.state().to_json();
        prop_assert!(state.len() <= 1024, "{}", state.len());
        drop(loader);

        // Bit for bit with another budget and other threads: the order is the one that was begun, in
        // this epoch and in the next.
        let state = LoaderState::parse_json(&state).unwrap();
        let go_on = |other: LoaderOptions| {
            let mut loader = Loader::open(other).unwrap();
            loader.restore(&state, false).unwrap();
            loader.start(state.epoch, state.position).unwrap();
            let mut found = rest(&mut loader);
            let (epoch, position) = loader.position();
            assert_eq!((epoch, position), (1, 0));
            loader.start(epoch, position).unwrap();
            found.extend(rest(&mut loader));
            found
        };
        let expected = [&whole[0][stop_after..], &whole[1]].concat();
        let budget = Bytes(wanted.budget.0 * more + 100_000);
        let other = LoaderOptions { budget, threads: Some(1), ..wanted.clone() };
        prop_assert_eq!(go_on(other), &expected[..]);

        // Row for row in batches of another size, divided among other processes.
        let mut shares = Vec::new();
        for index in 0..count {
            let batch_size = share * count;
            let shard = ShardOptions { index, count };
            let mut other = LoaderOptions { batch_size, shard, ..wanted.clone() };
            other.budget = Bytes(wanted.budget.0 + least(&other).0 + (1 << 21));
            shares.push(go_on(other));
        }
        let batches = 0..shares[0].len();
        let together = batches.flat_map(|batch| shares.iter().flat_map(move |it| it[batch].clone()));
        prop_assert_eq!(together.collect::<Vec<_>>(), expected.concat());
    }
}

#[test]
fn the_two_sets_of_a_split_are_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        let mut rows = Vec::new();
        for set in [SplitSet::Train, SplitSet::Validation] {
            let mut wanted = request(&path);
            wanted.split = Some(SplitOptions::of_two(set, 0.1, SplitMode::Spread, 1));
            rows.extend(epoch(wanted, 0));
        }
        assert_eq!(sorted(&rows), every_row());
    }
}

#[test]
fn the_order_is_the_same_on_machines_with_other_processors() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let with = |threads| {
        let wanted =
            LoaderOptions { threads: Some(threads), budget: Bytes(60_000), ..request(&path) };
        epoch(wanted, 0)
    };
    assert_eq!(with(1), with(16));
}
