//! The order of rows as the first release made it. It never changes: a run that was begun with one
//! version goes on with the next.

use vramfit_data::order::{Engine, Order, RowSubset, Split, SplitMode, WindowSize};

fn first(rows: u64, seed: u64, engine: Engine, part: RowSubset, epoch: u64) -> Vec<u64> {
    let order = Order::new(rows, seed, engine, part).expect("these can be");
    let mut out = Vec::new();
    order.epoch(epoch).append_rows(0..8, &mut out);
    out
}

#[test]
fn rows_come_as_in_the_first_release() {
    let size = WindowSize { block_rows: 7, window_blocks: 5 };
    let large = WindowSize { block_rows: 1024, window_blocks: 64 };
    let split = Split::new(1000, 0.1, SplitMode::Spread, 42).unwrap();
    let (shuffle, all, train) = (Engine::GlobalShuffle, RowSubset::All, RowSubset::Train(split));
    let (blocks, chunks) = (Engine::BlockWindows(size), Engine::ChunkWindows(large));
    let cases = [
        first(10, 0, shuffle, all, 0),
        first(1000, 0, shuffle, all, 0),
        first(1000, 0, shuffle, all, 1),
        first(1000, 1, shuffle, all, 0),
        first(100_000_000, 42, shuffle, all, 3),
        first(1000, 0, blocks, all, 0),
        first(100_000_000, 42, chunks, all, 3),
        first(1000, 0, shuffle, train, 0),
        first(1000, 0, blocks, train, 0),
        first(1000, 0, Engine::Sequential, RowSubset::Validation(split), 0),
    ];
    assert_eq!(
        cases,
        [
            [2, 8, 3, 9, 4, 1, 6, 7],
            [883, 346, 901, 67, 837, 722, 261, 280],
            [950, 111, 222, 702, 681, 407, 753, 935],
            [12, 624, 197, 77, 192, 762, 311, 463],
            [
                49_707_373, 48_004_936, 23_804_651, 75_837_003, 81_211_342, 34_750_133, 72_159_339,
                21_263_105
            ],
            [853, 868, 753, 848, 872, 749, 752, 308],
            [
                70_332_258, 70_332_101, 42_286_626, 40_103_536, 66_572_137, 51_412_397, 95_305_954,
                48_398_215
            ],
            [263, 116, 63, 254, 701, 548, 43, 541],
            [750, 868, 308, 849, 873, 751, 755, 312],
            [9, 10, 23, 35, 49, 54, 68, 73]
        ]
    );
}
