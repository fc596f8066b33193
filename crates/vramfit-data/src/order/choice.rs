//! Which engine suits a file: decided by how its rows are stored and how large a pool may be, and told in
//! words. Neither the machine's memory nor its processors have a say, so every host chooses the same.

use vramfit_core::Bytes;

use super::{Engine, Pools};

/// With fewer blocks in a pool, batches of a file that is sorted by label are visibly uneven; the
/// figures are in `docs/concepts/row-order.md`.
pub const MIN_BLOCKS_PER_POOL: u64 = 64;

/// With so many, batches are nearly as even as a fair draw: blocks grow rather than become more.
const TARGET_BLOCKS: u64 = 256;

/// A disk gives most of its bandwidth when as much is read at once; more only makes pools coarser.
const LARGE_READ: u64 = 1 << 20;

/// A disk gives half of its bandwidth when as much is read at once. Smaller blocks only where there would be too few.
const SMALL_READ: u64 = 64 << 10;

/// A disk gives a quarter of its bandwidth, which is worth a warning.
const TINY_READ: u64 = 16 << 10;

/// Rows from this size on are read one by one about as quickly as together.
const LONE_READ: u64 = TINY_READ;

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

impl Layout {
    /// Returns how many rows have to be read together, which is 1 where none have.
    pub fn band_rows(&self) -> u64 {
        match self.storage {
            Storage::Contiguous => 1,
            Storage::Chunked { band_rows } => band_rows.clamp(1, self.rows.max(1)),
        }
    }

    /// Returns the bytes in memory of what has to be read together.
    pub fn band_bytes(&self) -> u64 {
        self.band_rows().saturating_mul(self.row_bytes).max(1)
    }

    /// Whether shuffling it takes pools: otherwise each row is read from where it lies.
    pub fn is_pooled(&self) -> bool {
        self.storage != Storage::Contiguous || self.row_bytes < LONE_READ
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

/// Chooses the engine for shuffled reading in pools of at most `pool` bytes, which has to be enough for
/// [`Layout::band_bytes`]. `budget_for` says which budget has pools of so many bytes; it is told where a
/// larger one would help.
pub fn choose(layout: Layout, pool: Bytes, budget_for: impl Fn(u64) -> u64) -> Choice {
    if !layout.is_pooled() {
        return Choice {
            engine: Engine::Gather,
            reason: format!(
                "rows lie one after the other, and each is large enough ({}) to be read alone",
                Bytes(layout.row_bytes)
            ),
            warning: None,
        };
    }
    let bands = layout.rows.div_ceil(layout.band_rows()).max(1);
    let room = (pool.0 / layout.band_bytes()).clamp(1, bands);
    let stored = (layout.stored_bytes / bands).clamp(1, layout.band_bytes());
    let joined = match room == bands {
        // All rows are mixed with each other, however large the blocks are.
        true => (LARGE_READ / stored).clamp(1, bands),
        false => read_together(stored, bands, room),
    };
    let pools = Pools {
        block_rows: layout.band_rows() * joined,
        pool_blocks: match room == bands {
            true => bands.div_ceil(joined),
            false => pool_blocks(bands, room, joined),
        },
    };
    Choice {
        engine: match layout.storage {
            Storage::Contiguous => Engine::BlockPool(pools),
            Storage::Chunked { .. } => Engine::ChunkPool(pools),
        },
        reason: reason(layout, pools, room == bands),
        warning: match room == bands {
            true => None,
            false => warning(layout, pools, stored * joined, budget_for),
        },
    }
}

/// Returns how many neighbouring bands of `stored` bytes make a block: enough for large reads as long as
/// a pool has plenty of blocks, and for reads of any use as long as it has enough.
fn read_together(stored: u64, bands: u64, room: u64) -> u64 {
    let large = (LARGE_READ / stored).min(room / TARGET_BLOCKS);
    let small = (SMALL_READ / stored).min(room / MIN_BLOCKS_PER_POOL);
    let mut joined = large.max(small).max(1);
    // Pools are divided evenly, and may have less than there is room for.
    while joined > 1 && pool_blocks(bands, room, joined) < MIN_BLOCKS_PER_POOL {
        joined -= 1;
    }
    joined
}

/// Returns the blocks of a pool when an epoch is divided evenly into as few pools as `room` allows.
fn pool_blocks(bands: u64, room: u64, joined: u64) -> u64 {
    let blocks = bands.div_ceil(joined);
    let pools = blocks.div_ceil((room / joined).max(1));
    blocks.div_ceil(pools)
}

fn reason(layout: Layout, pools: Pools, is_whole: bool) -> String {
    let lie = match layout.storage {
        Storage::Contiguous => format!(
            "rows lie one after the other and are small ({}), so blocks of {} rows are read",
            Bytes(layout.row_bytes),
            pools.block_rows
        ),
        Storage::Chunked { .. } => "rows lie in chunks, which can only be read whole".to_owned(),
    };
    match is_whole {
        true => format!("{lie}; the budget holds all {} rows at once", layout.rows),
        false => format!(
            "{lie}; {} random blocks of {} rows ({}) are mixed at a time",
            pools.pool_blocks,
            pools.block_rows,
            Bytes(pools.block_rows * layout.row_bytes)
        ),
    }
}

/// Says what is lost: an even mixture, or the speed of a disk.
fn warning(
    layout: Layout,
    pools: Pools,
    read: u64,
    budget_for: impl Fn(u64) -> u64,
) -> Option<String> {
    // Pools are divided evenly, so a pool has so many blocks when an epoch has few enough pools.
    let budget = |block_rows: u64| {
        let blocks = layout.rows.div_ceil(block_rows);
        let pools = ((blocks - 1) / (MIN_BLOCKS_PER_POOL - 1)).max(1);
        let bytes = blocks
            .div_ceil(pools)
            .saturating_mul(block_rows)
            .saturating_mul(layout.row_bytes);
        let budget = Bytes(budget_for(bytes));
        format!("a budget of {budget} ({} bytes)", budget.0)
    };
    if pools.pool_blocks < MIN_BLOCKS_PER_POOL {
        return Some(format!(
            "only {} blocks are mixed at a time, of {MIN_BLOCKS_PER_POOL} that an even shuffle of a \
             sorted file needs; {} is enough, or smaller chunks are",
            pools.pool_blocks,
            budget(layout.band_rows())
        ));
    }
    if read < TINY_READ {
        let bands = SMALL_READ.div_ceil((read * layout.band_rows() / pools.block_rows).max(1));
        return Some(format!(
            "only {} are read at a time, of which a disk gives a quarter of its speed at best; {} reads \
             {} at a time",
            Bytes(read),
            budget(layout.band_rows().saturating_mul(bands)),
            Bytes(SMALL_READ)
        ));
    }
    None
}
