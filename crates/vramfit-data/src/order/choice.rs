//! Which engine suits a file: decided by how its rows are stored and how much memory there is, and told
//! in words.

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::{Engine, Pools};

/// With fewer blocks in a pool, batches of a file that is sorted by label are visibly uneven; the
/// figures are in `docs/concepts/order.md`.
pub const MIN_BLOCKS_PER_POOL: u64 = 64;

/// A disk gives most of its bandwidth when as much is read at once; more only makes pools coarser.
const LARGE_READ: u64 = 1 << 20;

/// Below this a read costs as much as one of this size.
const SMALL_READ: u64 = 64 << 10;

/// How the rows of the datasets that are read together are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows in the file.
    pub rows: u64,
    /// Bytes of one row of all datasets together, as they are handed out.
    pub row_bytes: u64,
    /// Bytes that the datasets take on disk.
    pub stored_bytes: u64,
    /// How the rows lie.
    pub storage: Storage,
}

/// How rows lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One after the other, without chunks: any row can be read alone.
    Contiguous,
    /// In chunks, so that so many rows have to be read together. With several datasets this is a number
    /// of rows that is whole chunks of each, or of the largest.
    Chunked {
        /// Rows that have to be read together.
        band_rows: u64,
    },
}

/// What there is to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// What the loader may use in all.
    pub budget: Bytes,
    /// What the system could use to keep the file in memory by itself.
    pub free: Bytes,
}

impl Means {
    /// Returns what one pool may take: two pools are in memory, one in use and one being filled, and a
    /// quarter of the budget is left for the batches on their way.
    pub fn pool(&self) -> Bytes {
        Bytes(self.budget.0 / 8 * 3)
    }
}

/// An engine, and why it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The engine.
    pub engine: Engine,
    /// The reason, as one clause.
    pub reason: String,
    /// What is lost by it, with the number, and what would help.
    pub warning: Option<String>,
}

/// Chooses the engine for shuffled reading.
///
/// # Errors
/// `invalid-argument` when not one block fits the budget; the hint names the budget that would do.
pub fn choose(layout: Layout, means: Means) -> Result<Choice> {
    let pool = means.pool();
    let band_rows = match layout.storage {
        Storage::Contiguous => 1,
        Storage::Chunked { band_rows } => band_rows.clamp(1, layout.rows.max(1)),
    };
    let band_bytes = band_rows.saturating_mul(layout.row_bytes).max(1);
    if band_bytes > pool.0 {
        return Err(too_small(layout, band_rows, band_bytes, means));
    }
    // Half of the free memory: a file that fills all of it pushes out its own beginning.
    if layout.storage == Storage::Contiguous && layout.stored_bytes <= means.free.0 / 2 {
        return Ok(Choice {
            engine: Engine::Gather,
            reason: format!(
                "rows lie one after the other, and the system can keep all {} of them in its {} of free memory",
                Bytes(layout.stored_bytes),
                means.free
            ),
            warning: None,
        });
    }

    let bands = layout.rows.div_ceil(band_rows).max(1);
    let bands_in_pool = (pool.0 / band_bytes).min(bands);
    let whole = bands_in_pool == bands;
    let stored = (layout.stored_bytes / bands).clamp(1, band_bytes);
    let joined = match whole {
        // All rows are mixed with each other, however large the blocks are.
        true => (LARGE_READ / stored).clamp(1, bands),
        false => bands_read_together(stored, bands_in_pool),
    };
    let pools = Pools {
        block_rows: band_rows * joined,
        pool_blocks: match whole {
            true => bands.div_ceil(joined),
            false => bands_in_pool / joined,
        },
    };
    Ok(told(layout, pools, whole))
}

/// Returns how many neighbouring bands of `stored` bytes make a block: enough for large reads, as long as a pool still has
/// enough blocks; beyond that only as many as a read of any use needs.
fn bands_read_together(stored: u64, bands_in_pool: u64) -> u64 {
    let large = LARGE_READ / stored;
    let small = SMALL_READ / stored;
    large
        .min(bands_in_pool / MIN_BLOCKS_PER_POOL)
        .max(small.min(bands_in_pool / 2))
        .max(1)
}

fn told(layout: Layout, pools: Pools, whole: bool) -> Choice {
    let block = Bytes(pools.block_rows * layout.row_bytes);
    let blocks = pools.pool_blocks;
    let (engine, lie) = match layout.storage {
        Storage::Contiguous => (
            Engine::BlockPool(pools),
            "rows lie one after the other in a file larger than half of the free memory",
        ),
        Storage::Chunked { .. } => (
            Engine::ChunkPool(pools),
            "rows lie in chunks, which can only be read whole",
        ),
    };
    let mixed = match whole {
        true => format!("the budget holds all {} rows at once", layout.rows),
        false => format!(
            "{blocks} random blocks of {} rows ({block}) are mixed at a time",
            pools.block_rows
        ),
    };
    let warning = (!whole && blocks < MIN_BLOCKS_PER_POOL).then(|| {
        let needed = block.0.saturating_mul(MIN_BLOCKS_PER_POOL) / 3 * 8;
        format!(
            "only {blocks} blocks are mixed at a time, of {MIN_BLOCKS_PER_POOL} that an even shuffle of a \
             sorted file needs; a budget of {} gives as many, or smaller chunks do",
            Bytes(needed + 8)
        )
    });
    Choice {
        engine,
        reason: format!("{lie}; {mixed}"),
        warning,
    }
}

fn too_small(layout: Layout, band_rows: u64, band_bytes: u64, means: Means) -> Error {
    let what = match layout.storage {
        Storage::Contiguous => "a row".to_owned(),
        Storage::Chunked { .. } => {
            format!("the smallest piece that can be read, {band_rows} rows,")
        }
    };
    // Room for a block in each of two pools, and the quarter for batches.
    let needed = Bytes(
        (band_bytes.saturating_mul(8))
            .div_ceil(3)
            .next_multiple_of(8)
            + 8,
    );
    Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "{what} takes {}, and a budget of {} has {} for it",
            Bytes(band_bytes),
            means.budget,
            means.pool()
        ),
    )
    .hint(format!("give at least {needed} ({} bytes)", needed.0))
}
