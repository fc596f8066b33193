//! What every order of rows keeps to, whatever the file, the engine and the number of processes.

use proptest::prelude::*;
use vramfit_base::ErrorKind;
use vramfit_data::order::{
    Batches, DataFingerprint, Engine, FileDigests, ListedRows, LoaderState, Order, RemainderPolicy,
    RowSubset, ShardOptions, Split, SplitMode, ThreeWaySplit, WindowSize,
};
use vramfit_data::sample::RowRanges;

const FILE: DataFingerprint = DataFingerprint {
    bytes: 1 << 30,
    modified_ns: 1_700_000_000_000_000_000,
    chunks: 4096,
    index_hash: 0x1234_5678_9abc_def0,
    contents: Some(5),
};

fn engines() -> impl Strategy<Value = Engine> {
    let windows = (1_u64..50, 1_u64..20)
        .prop_map(|(block_rows, window_blocks)| WindowSize { block_rows, window_blocks });
    prop_oneof![
        Just(Engine::Sequential),
        Just(Engine::GlobalShuffle),
        windows.clone().prop_map(Engine::BlockWindows),
        windows.prop_map(Engine::ChunkWindows),
    ]
}

/// Orders of 1 to 600 rows, over all of them, some that are listed, or one side of a split of these.
fn orders() -> impl Strategy<Value = Order> {
    let part = (0_u8..5, 0.05_f64..0.95, any::<bool>(), any::<u64>());
    let listed = prop::option::of(prop::collection::vec((1_u64..20, 1_u64..20), 1..20));
    (1_u64..600, any::<u64>(), engines(), part, listed).prop_map(
        |(rows, seed, engine, (side, share, tail, split_seed), listed)| {
            let listed = listed.map(|ranges| list_rows(&ranges, rows)).filter(|it| !it.is_empty());
            let count = listed.as_ref().map_or(rows, RowRanges::len);
            let mode = if tail { SplitMode::Tail } else { SplitMode::Spread };
            let split = |count| Split::new(count, share, mode, split_seed).ok();
            let three = || {
                let rest = count - (count as f64 * share).round() as u64;
                Some(ThreeWaySplit { test: split(count)?, validation: split(rest)? })
            };
            let part = match side {
                1 => split(count).map(RowSubset::Train),
                2 => split(count).map(RowSubset::Validation),
                3 => three().map(RowSubset::TrainOfThree),
                4 => three().map(RowSubset::ValidationOfThree),
                _ => None,
            };
            let part = part.unwrap_or_default();
            match listed {
                None => Order::new(rows, seed, engine, part),
                Some(listed) => Order::listed(rows, seed, engine, part, ListedRows::new(listed)),
            }
            .expect("these can be")
        },
    )
}

/// Lists rows below `rows`: ranges of some lengths, behind some that are left out.
fn list_rows(ranges: &[(u64, u64)], rows: u64) -> RowRanges {
    let mut start = 0;
    let ranges = ranges.iter().map(|(gap, length)| {
        let range = start + gap..start + gap + length;
        start = range.end;
        range.start.min(rows)..range.end.min(rows)
    });
    ranges.collect()
}

fn whole(order: &Order, epoch: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    order.epoch(epoch).append_rows(0..order.len(), &mut rows);
    rows
}

proptest! {
    #[test]
    fn every_row_comes_exactly_once_in_an_epoch(order in orders(), epoch: u64) {
        let mut rows = whole(&order, epoch);
        prop_assert_eq!(rows.len() as u64, order.len());
        rows.sort_unstable();
        prop_assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(rows.iter().all(|&row| row < order.rows()));
    }

    #[test]
    fn training_and_validation_never_meet(
        order in orders(), other in engines(), share in 0.05_f64..0.95, seed: u64,
    ) {
        let rows = order.rows();
        let Ok(split) = Split::new(rows, share, SplitMode::Spread, seed) else { return Ok(()) };
        // Another engine, as after a change of the budget, and another seed of the order.
        let train = Order::new(rows, 1, order.engine(), RowSubset::Train(split)).unwrap();
        let validation = Order::new(rows, 2, other, RowSubset::Validation(split)).unwrap();
        let mut all = whole(&train, 3);
        all.extend(whole(&validation, 0));
        all.sort_unstable();
        prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
    }

    #[test]
    fn any_stretch_is_had_without_what_comes_before(
        order in orders(), epoch: u64, a in 0.0_f64..1.0, b in 0.0_f64..1.0,
    ) {
        let rows = whole(&order, epoch);
        let (from, to) = (a.min(b), a.max(b));
        let from = (rows.len() as f64 * from) as usize;
        let to = (rows.len() as f64 * to) as usize;
        let mut stretch = Vec::new();
        order.epoch(epoch).append_rows(from as u64..to as u64, &mut stretch);
        prop_assert_eq!(&stretch, &rows[from..to]);
    }

    #[test]
    fn pools_hold_the_blocks_of_their_rows(order in orders(), epoch: u64) {
        let rows = whole(&order, epoch);
        let walk = order.epoch(epoch);
        let mut spanned = Vec::new();
        for number in 0..walk.window_count().unwrap_or(0) {
            let window = walk.window(number).unwrap();
            let mut wanted = vec![0; window.blocks().len()];
            let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
            one_by_one.extend(window.positions().map(|position| window.get(position)));
            let positions: Vec<_> = window.positions().collect();
            window.for_each(&positions, |block, row| together.push((block, row)));
            prop_assert_eq!(one_by_one, together);
            for position in window.positions() {
                let (block, row) = window.get(position);
                prop_assert_eq!(walk.window_at(position), Some(number));
                prop_assert_eq!(row, rows[position as usize]);
                prop_assert!(window.blocks()[block].rows.contains(&row));
                wanted[block] += 1;
            }
            let promised: Vec<u64> = window.blocks().iter().map(|block| block.wanted).collect();
            prop_assert_eq!(wanted, promised);
            spanned.extend(window.blocks().iter().flat_map(|block| block.rows.clone()));
            // None is left at the end that mixes less than the others.
            let sizes = (walk.window(0).unwrap().blocks().len(), window.blocks().len());
            prop_assert!(sizes.0.abs_diff(sizes.1) <= 1, "{sizes:?}");
        }
        if walk.window_count().is_some() {
            spanned.sort_unstable();
            prop_assert_eq!(spanned, (0..order.rows()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn batches_are_the_order_for_any_number_of_processes(
        order in orders(), epoch: u64, part in 1_u64..20, pad: bool, shard_counts in prop::collection::vec(0_u32..4, 1..9),
    ) {
        let rows = whole(&order, epoch);
        let size = part * 8;
        let last = if pad { RemainderPolicy::Pad } else { RemainderPolicy::Drop };
        let Ok(batches) = Batches::new(order.len(), size, last) else {
            prop_assert!(!pad && size > order.len());
            return Ok(());
        };
        // The number of processes changes from batch to batch; what all of them got together does not.
        let mut delivered = Vec::new();
        for index in 0..batches.count() {
            let batch = batches.get(index).unwrap();
            let count = 1 << shard_counts[index as usize % shard_counts.len()];
            for index in 0..count {
                let slice = batch.shard(ShardOptions { index, count }).unwrap();
                let taken = slice.positions.end - slice.positions.start;
                prop_assert_eq!(taken + slice.padding, size / count);
                prop_assert!(slice.repeated < order.len());
                order.epoch(epoch).append_rows(slice.positions, &mut delivered);
            }
        }
        prop_assert_eq!(batches.get(batches.count()), None);
        let kept = if pad { rows.len() } else { rows.len() / size as usize * size as usize };
        prop_assert_eq!(&delivered, &rows[..kept]);
    }

    #[test]
    fn another_batch_size_continues_where_the_first_stopped(
        order in orders(), epoch: u64, first in 1_u64..40, second in 1_u64..40, stop in 0_u64..20,
    ) {
        let rows = whole(&order, epoch);
        let before = Batches::new(order.len(), first, RemainderPolicy::Pad).unwrap();
        let mut delivered = Vec::new();
        let mut position = 0;
        while let Some(batch) = before.at(position).filter(|_| position < stop * first) {
            position = batch.positions.end;
            order.epoch(epoch).append_rows(batch.positions, &mut delivered);
        }
        // A state has a hash of the rows that are listed, and not the list.
        let text = LoaderState::new(order.clone(), epoch, position, FILE).to_json();
        let state = LoaderState::parse_json(&text).unwrap();
        let after = Batches::new(state.order.len(), second, RemainderPolicy::Pad).unwrap();
        let mut position = state.position;
        while let Some(batch) = after.at(position) {
            position = batch.positions.end;
            order.epoch(state.epoch).append_rows(batch.positions, &mut delivered);
        }
        prop_assert_eq!(delivered, rows);
    }

    #[test]
    fn a_state_is_small_and_read_again(order in orders(), epoch: u64, share in 0.0_f64..=1.0) {
        let position = (order.len() as f64 * share) as u64;
        let state = LoaderState::new(order, epoch, position, FILE);
        let text = state.to_json();
        prop_assert!(text.len() <= 1000, "{} bytes", text.len());
        prop_assert_eq!(LoaderState::parse_json(&text).unwrap(), state);
    }
}

#[test]
fn the_largest_state_is_below_a_kilobyte() {
    let split = Split::new(u64::MAX >> 1, 0.5, SplitMode::Spread, u64::MAX).unwrap();
    let windows =
        Engine::ChunkWindows(WindowSize { block_rows: u64::MAX >> 1, window_blocks: u64::MAX });
    let rest = Split::new(u64::MAX >> 2, 0.5, SplitMode::Spread, u64::MAX).unwrap();
    let part = RowSubset::ValidationOfThree(ThreeWaySplit { test: split, validation: rest });
    let listed = ListedRows::new(std::iter::once(0..u64::MAX >> 1).collect());
    let order = Order::listed(u64::MAX >> 1, u64::MAX, windows, part, listed).unwrap();
    let file = DataFingerprint {
        bytes: u64::MAX,
        modified_ns: i64::MIN,
        chunks: u64::MAX,
        index_hash: u64::MAX,
        contents: Some(u64::MAX),
    };
    let length = order.len();
    let mut state = LoaderState::new(order, u64::MAX - 1, length, file);
    state.samples = Some(u64::MAX);
    state.files = FileDigests::new(&vec![u64::MAX; 100_000]);
    assert!(state.to_json().len() <= 1000, "{}", state.to_json().len());
    assert_eq!(LoaderState::parse_json(&state.to_json()).unwrap(), state);
}

#[test]
fn a_changed_file_is_refused_with_what_differs() {
    let order = Order::new(100, 0, Engine::GlobalShuffle, RowSubset::All).unwrap();
    let state = LoaderState::new(order, 2, 30, FILE);
    state.ensure_matches("train.h5", false, &FILE, || None).unwrap();
    let copy = DataFingerprint { modified_ns: 0, ..FILE };
    state.ensure_matches("train.h5", false, &copy, || FILE.contents).unwrap();
    type Change = fn(&mut DataFingerprint);
    let changed: [(Change, &str); 4] = [
        (
            |file| file.bytes += 1,
            "its size was 1.0 GiB (1073741824 bytes) and is now 1.0 GiB (1073741825 bytes)",
        ),
        (|file| file.chunks += 1, "it had 4096 chunks and now has 4097"),
        (|file| file.index_hash = 0, "its chunks are at other offsets"),
        (
            |file| file.modified_ns += 1,
            "its values differ, although its size and chunks are the same",
        ),
    ];
    for (change, difference) in changed {
        let mut file = FILE;
        change(&mut file);
        let error = state.ensure_matches("train.h5", false, &file, || Some(6)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileChanged);
        assert_eq!(
            error.message(),
            format!("`train.h5` is not the file that this run started with: {difference}")
        );
        assert!(error.hint_text().is_some());
    }
}

#[test]
fn a_text_that_is_no_state_is_refused() {
    let order = Order::new(100, 0, Engine::GlobalShuffle, RowSubset::All).unwrap();
    let good = LoaderState::new(order, 2, 30, FILE).to_json();
    let refused = |text: &str| {
        let error = LoaderState::parse_json(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        error.message().replace("this is not a loader state: ", "")
    };
    assert_eq!(refused(&good[..50]), "it is not valid JSON");
    assert_eq!(refused("{}"), "the field `schema` is missing");
    assert_eq!(
        refused(&good.replace("\"schema\":1", "\"schema\":2")),
        "its format version is 2, and this vramfit reads version 1"
    );
    assert_eq!(
        refused(&good.replace("\"epoch\":2", "\"epoch\":-2")),
        "a field is missing or invalid"
    );
    assert_eq!(
        refused(&good.replace("\"position\":30", "\"position\":101")),
        "its position 101 is beyond the 100 rows of the epoch"
    );
    assert_eq!(refused(&good.replace("\"rows\":100", "\"rows\":0")), "its order is not valid");
}

#[test]
fn orders_and_batches_that_cannot_be_are_refused() {
    let refused = |result: vramfit_base::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    let order = |rows, engine, part| Order::new(rows, 0, engine, part).map(|_| ());
    assert_eq!(
        refused(order(0, Engine::GlobalShuffle, RowSubset::All)),
        "there are no rows to order"
    );
    let nothing = Engine::BlockWindows(WindowSize { block_rows: 0, window_blocks: 4 });
    assert_eq!(
        refused(order(9, nothing, RowSubset::All)),
        "the blocks and windows of a shuffle must not be empty"
    );
    let split = Split::new(100, 0.5, SplitMode::Tail, 0).unwrap();
    assert_eq!(
        refused(order(9, Engine::GlobalShuffle, RowSubset::Train(split))),
        "50 validation rows out of 9 leave one of the two sets empty"
    );
    let batches = |rows, size, last| Batches::new(rows, size, last).map(|_| ());
    assert_eq!(refused(batches(9, 0, RemainderPolicy::Pad)), "the batch size is 0");
    assert_eq!(
        refused(batches(9, 10, RemainderPolicy::Drop)),
        "a batch size of 10 exceeds the 9 rows available, and incomplete batches are dropped"
    );
    let shard = |index, count| {
        let batch = Batches::new(100, 10, RemainderPolicy::Pad).unwrap().get(0).unwrap();
        batch.shard(ShardOptions { index, count }).map(|_| ())
    };
    assert_eq!(
        refused(shard(0, 4)),
        "a batch of 10 rows cannot be divided equally among 4 processes"
    );
    assert_eq!(refused(shard(2, 2)), "process number 2 is out of range for 2 processes");
}
