//! What every order of rows keeps to, whatever the file, the engine and the number of processes.

use proptest::prelude::*;
use vramfit_core::ErrorKind;
use vramfit_data::order::{
    Batches, Engine, Fingerprint, Last, Manner, Order, Part, Pools, Split, State, World,
};

const FILE: Fingerprint = Fingerprint {
    bytes: 1 << 30,
    modified_ns: 1_700_000_000_000_000_000,
    chunks: 4096,
    index_hash: 0x1234_5678_9abc_def0,
    contents: Some(5),
};

fn engines() -> impl Strategy<Value = Engine> {
    let pools = (1_u64..50, 1_u64..20).prop_map(|(block_rows, pool_blocks)| Pools {
        block_rows,
        pool_blocks,
    });
    prop_oneof![
        Just(Engine::Sequential),
        Just(Engine::Gather),
        pools.clone().prop_map(Engine::BlockPool),
        pools.prop_map(Engine::ChunkPool),
    ]
}

/// Orders of 1 to 600 rows, over all of them or one side of a split.
fn orders() -> impl Strategy<Value = Order> {
    let part = (0_u8..3, 0.05_f64..0.95, any::<bool>(), any::<u64>());
    (1_u64..600, any::<u64>(), engines(), part).prop_map(
        |(rows, seed, engine, (side, share, tail, split_seed))| {
            let manner = if tail { Manner::Tail } else { Manner::Spread };
            let split = Split::new(rows, share, manner, split_seed);
            let part = match (side, split) {
                (1, Ok(split)) => Part::Train(split),
                (2, Ok(split)) => Part::Validation(split),
                _ => Part::All,
            };
            Order::new(rows, seed, engine, part).expect("these can be")
        },
    )
}

fn whole(order: Order, epoch: u64) -> Vec<u64> {
    let mut rows = Vec::new();
    order.epoch(epoch).append_rows(0..order.len(), &mut rows);
    rows
}

proptest! {
    #[test]
    fn every_row_comes_exactly_once_in_an_epoch(order in orders(), epoch: u64) {
        let mut rows = whole(order, epoch);
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
        let Ok(split) = Split::new(rows, share, Manner::Spread, seed) else { return Ok(()) };
        // Another engine, as after a change of the budget, and another seed of the order.
        let train = Order::new(rows, 1, order.engine(), Part::Train(split)).unwrap();
        let validation = Order::new(rows, 2, other, Part::Validation(split)).unwrap();
        let mut all = whole(train, 3);
        all.extend(whole(validation, 0));
        all.sort_unstable();
        prop_assert_eq!(all, (0..rows).collect::<Vec<_>>());
    }

    #[test]
    fn any_stretch_is_had_without_what_comes_before(
        order in orders(), epoch: u64, a in 0.0_f64..1.0, b in 0.0_f64..1.0,
    ) {
        let rows = whole(order, epoch);
        let (from, to) = (a.min(b), a.max(b));
        let from = (rows.len() as f64 * from) as usize;
        let to = (rows.len() as f64 * to) as usize;
        let mut stretch = Vec::new();
        order.epoch(epoch).append_rows(from as u64..to as u64, &mut stretch);
        prop_assert_eq!(&stretch, &rows[from..to]);
    }

    #[test]
    fn pools_hold_the_blocks_of_their_rows(order in orders(), epoch: u64) {
        let rows = whole(order, epoch);
        let walk = order.epoch(epoch);
        let mut spanned = Vec::new();
        for number in 0..walk.pools().unwrap_or(0) {
            let pool = walk.pool(number).unwrap();
            let mut wanted = vec![0; pool.blocks().len()];
            let (mut one_by_one, mut together) = (Vec::new(), Vec::new());
            one_by_one.extend(pool.positions().map(|position| pool.get(position)));
            let positions: Vec<_> = pool.positions().collect();
            pool.for_each(&positions, |block, row| together.push((block, row)));
            prop_assert_eq!(one_by_one, together);
            for position in pool.positions() {
                let (block, row) = pool.get(position);
                prop_assert_eq!(walk.pool_at(position), Some(number));
                prop_assert_eq!(row, rows[position as usize]);
                prop_assert!(pool.blocks()[block].rows.contains(&row));
                wanted[block] += 1;
            }
            let promised: Vec<u64> = pool.blocks().iter().map(|block| block.wanted).collect();
            prop_assert_eq!(wanted, promised);
            spanned.extend(pool.blocks().iter().flat_map(|block| block.rows.clone()));
            // None is left at the end that mixes less than the others.
            let sizes = (walk.pool(0).unwrap().blocks().len(), pool.blocks().len());
            prop_assert!(sizes.0.abs_diff(sizes.1) <= 1, "{sizes:?}");
        }
        if walk.pools().is_some() {
            spanned.sort_unstable();
            prop_assert_eq!(spanned, (0..order.rows()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn batches_are_the_order_for_any_number_of_processes(
        order in orders(), epoch: u64, part in 1_u64..20, pad: bool, worlds in prop::collection::vec(0_u32..4, 1..9),
    ) {
        let rows = whole(order, epoch);
        let size = part * 8;
        let last = if pad { Last::Pad } else { Last::Drop };
        let Ok(batches) = Batches::new(order.len(), size, last) else {
            prop_assert!(!pad && size > order.len());
            return Ok(());
        };
        // The number of processes changes from batch to batch; what all of them got together does not.
        let mut delivered = Vec::new();
        for index in 0..batches.count() {
            let batch = batches.get(index).unwrap();
            let processes = 1 << worlds[index as usize % worlds.len()];
            for rank in 0..processes {
                let share = batch.share(World { rank, processes }).unwrap();
                let taken = share.positions.end - share.positions.start;
                prop_assert_eq!(taken + share.padding, size / processes);
                prop_assert!(share.repeated < order.len());
                order.epoch(epoch).append_rows(share.positions, &mut delivered);
            }
        }
        prop_assert_eq!(batches.get(batches.count()), None);
        let kept = if pad { rows.len() } else { rows.len() / size as usize * size as usize };
        prop_assert_eq!(&delivered, &rows[..kept]);
    }

    #[test]
    fn another_batch_size_goes_on_where_the_first_stopped(
        order in orders(), epoch: u64, first in 1_u64..40, second in 1_u64..40, stop in 0_u64..20,
    ) {
        let rows = whole(order, epoch);
        let before = Batches::new(order.len(), first, Last::Pad).unwrap();
        let mut delivered = Vec::new();
        let mut position = 0;
        while let Some(batch) = before.at(position).filter(|_| position < stop * first) {
            position = batch.positions.end;
            order.epoch(epoch).append_rows(batch.positions, &mut delivered);
        }
        let text = State::new(order, epoch, position, FILE).to_json();
        let state = State::parse_json(&text).unwrap();
        let after = Batches::new(state.order.len(), second, Last::Pad).unwrap();
        let mut position = state.position;
        while let Some(batch) = after.at(position) {
            position = batch.positions.end;
            state.order.epoch(state.epoch).append_rows(batch.positions, &mut delivered);
        }
        prop_assert_eq!(delivered, rows);
    }

    #[test]
    fn a_state_is_small_and_read_again(order in orders(), epoch: u64, share in 0.0_f64..=1.0) {
        let position = (order.len() as f64 * share) as u64;
        let state = State::new(order, epoch, position, FILE);
        let text = state.to_json();
        prop_assert!(text.len() <= 1000, "{} bytes", text.len());
        prop_assert_eq!(State::parse_json(&text).unwrap(), state);
    }
}

#[test]
fn the_largest_state_is_below_a_kilobyte() {
    let split = Split::new(u64::MAX >> 1, 0.5, Manner::Spread, u64::MAX).unwrap();
    let pools = Engine::ChunkPool(Pools {
        block_rows: u64::MAX >> 1,
        pool_blocks: u64::MAX,
    });
    let order = Order::new(u64::MAX >> 1, u64::MAX, pools, Part::Validation(split)).unwrap();
    let file = Fingerprint {
        bytes: u64::MAX,
        modified_ns: i64::MIN,
        chunks: u64::MAX,
        index_hash: u64::MAX,
        contents: Some(u64::MAX),
    };
    let state = State::new(order, u64::MAX, order.len(), file);
    assert!(state.to_json().len() <= 1000, "{}", state.to_json().len());
    assert_eq!(State::parse_json(&state.to_json()).unwrap(), state);
}

#[test]
fn a_changed_file_is_refused_with_what_differs() {
    let order = Order::new(100, 0, Engine::Gather, Part::All).unwrap();
    let state = State::new(order, 2, 30, FILE);
    state.must_be_of("train.h5", &FILE, || None).unwrap();
    let copy = Fingerprint {
        modified_ns: 0,
        ..FILE
    };
    state
        .must_be_of("train.h5", &copy, || FILE.contents)
        .unwrap();
    let changed = [
        (
            Fingerprint {
                bytes: (1 << 30) + 1,
                ..FILE
            },
            "it had 1.0 GiB (1073741824 bytes) and has 1.0 GiB (1073741825 bytes)",
        ),
        (
            Fingerprint {
                chunks: 4097,
                ..FILE
            },
            "it had 4096 chunks and has 4097",
        ),
        (
            Fingerprint {
                index_hash: 0,
                ..FILE
            },
            "its chunks lie elsewhere",
        ),
        (
            Fingerprint {
                modified_ns: FILE.modified_ns + 1,
                ..FILE
            },
            "values in it are others, though its size and its chunks are the same",
        ),
    ];
    for (file, difference) in changed {
        let error = state.must_be_of("train.h5", &file, || Some(6)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileChanged);
        assert_eq!(
            error.message(),
            format!("`train.h5` is not the file that this run began with: {difference}")
        );
        assert!(error.hint_text().is_some());
    }
}

#[test]
fn a_text_that_is_no_state_is_refused() {
    let order = Order::new(100, 0, Engine::Gather, Part::All).unwrap();
    let good = State::new(order, 2, 30, FILE).to_json();
    let refused = |text: &str| {
        let error = State::parse_json(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        error
            .message()
            .replace("this is no state of a loader: ", "")
    };
    assert_eq!(refused(&good[..50]), "it cannot be read as JSON");
    assert_eq!(refused("{}"), "it has no `schema`");
    assert_eq!(
        refused(&good.replace("\"schema\":1", "\"schema\":2")),
        "its form is number 2, and this version knows number 1"
    );
    assert_eq!(
        refused(&good.replace("\"epoch\":2", "\"epoch\":-2")),
        "a field is missing or wrong"
    );
    assert_eq!(
        refused(&good.replace("\"position\":30", "\"position\":101")),
        "it is at row 101 of an epoch of 100"
    );
    assert_eq!(
        refused(&good.replace("\"rows\":100", "\"rows\":0")),
        "its order cannot be"
    );
}

#[test]
fn orders_and_batches_that_cannot_be_are_refused() {
    let refused = |result: vramfit_core::Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    };
    let order = |rows, engine, part| Order::new(rows, 0, engine, part).map(|_| ());
    assert_eq!(
        refused(order(0, Engine::Gather, Part::All)),
        "there are no rows to put in an order"
    );
    let nothing = Engine::BlockPool(Pools {
        block_rows: 0,
        pool_blocks: 4,
    });
    assert_eq!(
        refused(order(9, nothing, Part::All)),
        "blocks and pools of a shuffle need a size above 0"
    );
    let split = Split::new(100, 0.5, Manner::Tail, 0).unwrap();
    assert_eq!(
        refused(order(9, Engine::Gather, Part::Train(split))),
        "50 rows for validation out of 9 leave one of the two sets empty"
    );
    let batches = |rows, size, last| Batches::new(rows, size, last).map(|_| ());
    assert_eq!(
        refused(batches(9, 0, Last::Pad)),
        "a batch of 0 rows holds nothing"
    );
    assert_eq!(
        refused(batches(9, 10, Last::Drop)),
        "a batch of 10 rows is larger than the 9 rows there are, and the last one is dropped"
    );
    let share = |rank, processes| {
        let batch = Batches::new(100, 10, Last::Pad).unwrap().get(0).unwrap();
        batch.share(World { rank, processes }).map(|_| ())
    };
    assert_eq!(
        refused(share(0, 4)),
        "a batch of 10 rows cannot be divided equally among 4 processes"
    );
    assert_eq!(
        refused(share(2, 2)),
        "there is no process 2 among 2, counted from 0"
    );
}
