//! Which engine is chosen, and what is said about it.

use proptest::prelude::*;
use vramfit_base::Bytes;
use vramfit_data::order::{
    Engine, EngineChoice, Layout, MIN_BLOCKS_PER_WINDOW, Storage, WindowSize, choose,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn contiguous(rows: u64, row_bytes: u64) -> Layout {
    Layout { rows, row_bytes, stored_bytes: rows * row_bytes, storage: Storage::Contiguous }
}

fn chunked(rows: u64, row_bytes: u64, band_rows: u64, stored_bytes: u64) -> Layout {
    Layout { rows, row_bytes, stored_bytes, storage: Storage::Chunked { band_rows } }
}

/// Chooses for windows of this many bytes, of which a budget has two and as much again.
fn choice(layout: Layout, window: u64) -> EngineChoice {
    choose(layout, Bytes(window), |window| window.saturating_mul(4))
}

fn window_size(layout: Layout, window: u64) -> WindowSize {
    let choice = choice(layout, window);
    choice.engine.window_size().expect("it is made of windows")
}

#[test]
fn large_rows_are_gathered() {
    let choice = choice(contiguous(1_000_000, 16 << 10), 64 * MIB);
    assert_eq!(choice.engine, Engine::GlobalShuffle);
    assert_eq!(
        choice.reason,
        "rows are contiguous and large enough (16.0 KiB) to be read individually"
    );
    assert_eq!(choice.warning, None);
}

#[test]
fn smaller_ones_are_read_in_blocks_that_get_smaller_before_they_get_few() {
    let file = contiguous(1_000_000_000, 256);
    let rows_and_blocks = |window| {
        let size = window_size(file, window);
        (size.block_rows, size.window_blocks)
    };
    // A mebibyte each, as a disk likes it, where 256 of them fit.
    assert_eq!(rows_and_blocks(GIB), (4096, 1022));
    assert_eq!(rows_and_blocks(256 * MIB), (4096, 256));
    // Then smaller ones, down to 64 KiB, of which fewer would be mixed otherwise.
    assert_eq!(rows_and_blocks(96 * MIB), (1536, 256));
    assert_eq!(rows_and_blocks(16 * MIB), (256, 256));
    assert_eq!(rows_and_blocks(8 * MIB), (256, 128));
    assert_eq!(rows_and_blocks(4 * MIB), (256, 64));
    // Then smaller still, and never fewer.
    assert_eq!(rows_and_blocks(MIB), (64, 64));
    assert_eq!(rows_and_blocks(110_000), (6, 71));

    assert_eq!(
        choice(file, 96 * MIB).reason,
        "rows are contiguous and small (256 B), so they are read in blocks of 1536; a window holds 256 \
         random blocks of 1536 rows (384.0 KiB)"
    );
    assert_eq!(choice(file, 96 * MIB).warning, None);
    assert_eq!(
        choice(file, 110_000).warning.as_deref(),
        Some(
            "reads of only 1.5 KiB get a quarter of a disk's bandwidth at best; with a memory budget of \
             16.0 MiB (16777216 bytes), reads have 64.0 KiB"
        )
    );
}

#[test]
fn small_chunks_are_joined_only_where_enough_of_them_fit() {
    // Chunks of 1 KiB: 64 KiB of them at a time would be two blocks in a window of 128 KiB.
    let file = chunked(100_000, 32, 32, 100_000 * 32);
    let chosen = window_size(file, 128 << 10);
    assert_eq!((chosen.block_rows, chosen.window_blocks), (32, 125));
}

#[test]
fn chunks_are_mixed_whole() {
    let layout = chunked(10_000_000, 256, 1024, GIB);
    assert_eq!(
        choice(layout, 24 * MIB),
        EngineChoice {
            engine: Engine::ChunkWindows(WindowSize {
                block_rows: 1024,
                window_blocks: 96,
            }),
            reason:
                "rows are stored in chunks, which can only be read as a whole; a window holds 96 random \
                     blocks of 1024 rows (256.0 KiB)"
                    .into(),
            warning: None,
        }
    );
}

#[test]
fn few_blocks_are_warned_of_with_their_number() {
    let layout = chunked(10_000_000, 256, 65_536, GIB);
    assert_eq!(
        choice(layout, 96 * MIB).warning.as_deref(),
        Some(
            "a window holds only 6 blocks, but an even shuffle of a sorted file needs 64; a memory budget \
             of 4.8 GiB (5167382528 bytes) is enough, and so are smaller chunks"
        )
    );
    // A window that holds the whole file mixes all of it, however few its blocks are.
    let layout = chunked(200_000, 256, 65_536, 40 * MIB);
    let choice = choice(layout, 96 * MIB);
    assert_eq!(choice.warning, None);
    assert_eq!(
        choice.reason,
        "rows are stored in chunks, which can only be read as a whole; one window holds all 200000 rows"
    );
}

proptest! {
    #[test]
    fn pools_fit_and_cover_the_file_and_what_is_promised_holds(
        rows in 1_u64..1_000_000_000,
        row_bytes in 1_u64..100_000,
        band_rows in prop::option::of(1_u64..1_000_000),
        ratio in 1_u64..10,
        window in 1_u64..(8 * GIB),
    ) {
        let storage = match band_rows {
            None => Storage::Contiguous,
            Some(band_rows) => Storage::Chunked { band_rows },
        };
        let layout = Layout { rows, row_bytes, stored_bytes: rows * row_bytes / ratio, storage };
        prop_assume!(layout.band_bytes() <= window);
        let chosen = choice(layout, window);
        let Some(size) = chosen.engine.window_size() else {
            prop_assert_eq!(storage, Storage::Contiguous);
            prop_assert!(row_bytes >= 16 << 10);
            return Ok(());
        };
        let held = (size.block_rows * size.window_blocks).min(rows) * row_bytes;
        prop_assert!(held <= window);
        prop_assert!(size.window_blocks > 0);
        prop_assert_eq!(size.block_rows % layout.band_rows(), 0);
        let whole = size.block_rows * size.window_blocks >= rows;
        if whole || size.window_blocks >= MIN_BLOCKS_PER_WINDOW {
            // What is left to warn of is small reads.
            prop_assert!(chosen.warning.is_none_or(|it| it.starts_with("reads of only")));
            return Ok(());
        }
        // Too few only where not even single bands are enough.
        prop_assert_eq!(size.block_rows, layout.band_rows());
        let warning = chosen.warning.expect("few blocks are warned of");
        let few = format!("a window holds only {} blocks", size.window_blocks);
        prop_assert!(warning.starts_with(&few));
        // The budget that it names is enough, and one byte less is not.
        let bytes = warning.split_once('(').unwrap().1.split(' ').next().unwrap();
        let enough: u64 = bytes.parse::<u64>().unwrap() / 4;
        prop_assert!(enough > window);
        let is_even = |window| {
            let size = choice(layout, window).engine.window_size().unwrap();
            size.window_blocks >= MIN_BLOCKS_PER_WINDOW || size.block_rows * size.window_blocks >= rows
        };
        prop_assert!(is_even(enough));
        prop_assert!(!is_even(enough - 1));
    }
}
