//! Which engine is chosen, and what is said about it.

use proptest::prelude::*;
use vramfit_core::{Bytes, ErrorKind};
use vramfit_data::order::{
    Choice, Engine, Layout, MIN_BLOCKS_PER_POOL, Means, Pools, Storage, choose,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn contiguous(rows: u64, row_bytes: u64) -> Layout {
    Layout {
        rows,
        row_bytes,
        stored_bytes: rows * row_bytes,
        storage: Storage::Contiguous,
    }
}

fn chunked(rows: u64, row_bytes: u64, band_rows: u64, stored_bytes: u64) -> Layout {
    Layout {
        rows,
        row_bytes,
        stored_bytes,
        storage: Storage::Chunked { band_rows },
    }
}

fn means(budget: u64, free: u64) -> Means {
    Means {
        budget: Bytes(budget),
        free: Bytes(free),
    }
}

#[test]
fn a_file_that_the_system_can_keep_is_gathered() {
    let choice = choose(contiguous(1_000_000, 256), means(64 * MIB, 16 * GIB)).unwrap();
    assert_eq!(choice.engine, Engine::Gather);
    assert_eq!(
        choice.reason,
        "rows lie one after the other, and the system can keep all 244.1 MiB of them in its 16.0 GiB of \
         free memory"
    );
    assert_eq!(choice.warning, None);
}

#[test]
fn a_larger_one_is_read_in_blocks() {
    let choice = choose(contiguous(1_000_000_000, 256), means(256 * MIB, 16 * GIB)).unwrap();
    // 96 MiB a pool: 64 blocks of at most 1 MiB fit, so blocks are as large as a disk likes.
    assert_eq!(
        choice.engine,
        Engine::BlockPool(Pools {
            block_rows: 4096,
            pool_blocks: 96,
        })
    );
    assert_eq!(
        choice.reason,
        "rows lie one after the other in a file larger than half of the free memory; 96 random blocks of \
         4096 rows (1.0 MiB) are mixed at a time"
    );
    assert_eq!(choice.warning, None);
    // With less memory the blocks get smaller before they get fewer.
    let choice = choose(contiguous(1_000_000_000, 256), means(32 * MIB, 16 * GIB)).unwrap();
    assert_eq!(
        choice.engine,
        Engine::BlockPool(Pools {
            block_rows: 768,
            pool_blocks: 64,
        })
    );
}

#[test]
fn chunks_are_mixed_whole() {
    let layout = chunked(10_000_000, 256, 1024, GIB);
    let choice = choose(layout, means(64 * MIB, 16 * GIB)).unwrap();
    assert_eq!(
        choice,
        Choice {
            engine: Engine::ChunkPool(Pools {
                block_rows: 1024,
                pool_blocks: 96,
            }),
            reason:
                "rows lie in chunks, which can only be read whole; 96 random blocks of 1024 rows \
                     (256.0 KiB) are mixed at a time"
                    .into(),
            warning: None,
        }
    );
}

#[test]
fn few_blocks_are_warned_of_with_their_number() {
    let layout = chunked(10_000_000, 256, 65_536, GIB);
    let choice = choose(layout, means(256 * MIB, 16 * GIB)).unwrap();
    assert_eq!(
        choice.warning.as_deref(),
        Some(
            "only 6 blocks are mixed at a time, of 64 that an even shuffle of a sorted file needs; a \
             budget of 2.7 GiB gives as many, or smaller chunks do"
        )
    );
    // A pool that holds the whole file mixes all of it, however few its blocks are.
    let layout = chunked(200_000, 256, 65_536, 40 * MIB);
    let choice = choose(layout, means(256 * MIB, 16 * GIB)).unwrap();
    assert_eq!(choice.warning, None);
    assert_eq!(
        choice.reason,
        "rows lie in chunks, which can only be read whole; the budget holds all 200000 rows at once"
    );
}

#[test]
fn a_budget_below_one_block_is_refused_with_the_least_that_would_do() {
    let layout = chunked(10_000_000, 256, 1 << 20, GIB);
    let error = choose(layout, means(64 * MIB, 16 * GIB)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(
        error.message(),
        "the smallest piece that can be read, 1048576 rows, takes 256.0 MiB, and a budget of 64.0 MiB has \
         24.0 MiB for it"
    );
    assert_eq!(
        error.hint_text(),
        Some("give at least 682.7 MiB (715827896 bytes)")
    );
    choose(layout, means(715_827_896, 16 * GIB)).unwrap();
}

proptest! {
    #[test]
    fn pools_fit_the_budget_and_cover_the_file(
        rows in 1_u64..1_000_000_000,
        row_bytes in 1_u64..100_000,
        band_rows in prop::option::of(1_u64..1_000_000),
        ratio in 1_u64..10,
        budget in 1_u64..(8 * GIB),
        free in 1_u64..(64 * GIB),
    ) {
        let storage = match band_rows {
            None => Storage::Contiguous,
            Some(band_rows) => Storage::Chunked { band_rows },
        };
        let layout = Layout { rows, row_bytes, stored_bytes: rows * row_bytes / ratio, storage };
        let means = means(budget, free);
        match choose(layout, means) {
            Ok(choice) => {
                let Some(pools) = choice.engine.pools() else {
                    prop_assert_eq!(choice.engine, Engine::Gather);
                    return Ok(());
                };
                let held = (pools.block_rows * pools.pool_blocks).min(rows) * row_bytes;
                prop_assert!(held <= means.pool().0);
                prop_assert!(pools.pool_blocks > 0);
                if let Some(band_rows) = band_rows {
                    prop_assert_eq!(pools.block_rows % band_rows.min(rows), 0);
                }
                let whole = pools.block_rows * pools.pool_blocks >= rows;
                prop_assert_eq!(
                    choice.warning.is_some(),
                    !whole && pools.pool_blocks < MIN_BLOCKS_PER_POOL
                );
            }
            Err(error) => {
                // The budget that the hint names is enough, and is more than what was there.
                let hint = error.hint_text().unwrap();
                let bytes = hint.rsplit_once('(').unwrap().1.split(' ').next().unwrap();
                let enough: u64 = bytes.parse().unwrap();
                prop_assert!(enough > budget);
                choose(layout, Means { budget: Bytes(enough), ..means }).unwrap();
            }
        }
    }
}
