//! Which engine suits a file: decided by how its rows are stored and how large a window may be. The memory and
//! processors of the machine do not matter, so every host chooses the same.

use vramfit_base::Bytes;

use super::{Engine, WindowSize};

/// With fewer blocks in a window, batches of a file that is sorted by label are visibly uneven; the
/// figures are in `docs/concepts/row-order.md`.
pub const MIN_BLOCKS_PER_WINDOW: u64 = 64;

/// With this many blocks, batches are nearly as even as a uniform shuffle: from here on blocks grow instead.
const TARGET_BLOCKS: u64 = 256;

/// Reads of this size get most of a disk's bandwidth; larger ones only make windows coarser.
const LARGE_READ: u64 = 1 << 20;

/// Reads of this size get half of a disk's bandwidth. Blocks are smaller only where there would be too few.
const SMALL_READ: u64 = 64 << 10;

/// Reads of this size get a quarter of a disk's bandwidth, which is worth a warning.
const TINY_READ: u64 = 16 << 10;

/// Rows of at least this size are read one by one about as fast as together.
const SINGLE_ROW_READ: u64 = TINY_READ;

/// How the rows of datasets that are read together are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows in the file.
    pub rows: u64,
    /// Bytes of one row of all datasets together, as they are handed out.
    pub row_bytes: u64,
    /// Size of the datasets on disk.
    pub stored_bytes: u64,
    /// Contiguous or chunked.
    pub storage: Storage,
}

/// How rows are stored in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Without chunks: any row can be read by itself.
    Contiguous,
    /// In chunks, so that several rows must be read together. With several datasets this is a number
    /// of rows that is a multiple of the chunks of each, or of the largest.
    Chunked {
        /// Rows that must be read together.
        band_rows: u64,
    },
    /// Without chunks, on the last axis: an element of a row here and there, so that several rows must be read
    /// together.
    LastAxis {
        /// Rows that must be read together.
        band_rows: u64,
    },
}

impl Layout {
    /// Returns how many rows must be read together, which is 1 for contiguous rows.
    pub fn band_rows(&self) -> u64 {
        match self.storage {
            Storage::Contiguous => 1,
            Storage::Chunked { band_rows } | Storage::LastAxis { band_rows } => {
                band_rows.clamp(1, self.rows.max(1))
            }
        }
    }

    /// Returns the bytes in memory of rows that must be read together.
    pub fn band_bytes(&self) -> u64 {
        self.band_rows().saturating_mul(self.row_bytes).max(1)
    }

    /// Whether it is shuffled in windows; otherwise each row is read by itself.
    pub fn uses_windows(&self) -> bool {
        self.storage != Storage::Contiguous || self.row_bytes < SINGLE_ROW_READ
    }
}

/// The engine for a file, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineChoice {
    /// The engine.
    pub engine: Engine,
    /// The reason, as one clause.
    pub reason: String,
    /// Its drawback, with numbers, and what would help.
    pub warning: Option<String>,
}

/// Chooses the engine for shuffled reading in windows of at most `window` bytes, which has to be enough for
/// [`Layout::band_bytes`]. `budget_for` returns the budget for windows of this many bytes, for the warning.
pub fn choose(layout: Layout, window: Bytes, budget_for: impl Fn(u64) -> u64) -> EngineChoice {
    if !layout.uses_windows() {
        return EngineChoice {
            engine: Engine::GlobalShuffle,
            reason: format!(
                "rows are contiguous and large enough ({}) to be read individually",
                Bytes(layout.row_bytes)
            ),
            warning: None,
        };
    }
    let bands = layout.rows.div_ceil(layout.band_rows()).max(1);
    let max_bands = (window.0 / layout.band_bytes()).clamp(1, bands);
    let stored = (layout.stored_bytes / bands).clamp(1, layout.band_bytes());
    let holds_file = max_bands == bands;
    let bands_per_block = match holds_file {
        // All rows are mixed with each other, however large the blocks are.
        true => (LARGE_READ / stored).clamp(1, bands),
        false => bands_per_block(stored, bands, max_bands),
    };
    let size = WindowSize {
        block_rows: layout.band_rows() * bands_per_block,
        window_blocks: match holds_file {
            true => bands.div_ceil(bands_per_block),
            false => window_blocks(bands, max_bands, bands_per_block),
        },
    };
    EngineChoice {
        engine: match layout.storage {
            Storage::Contiguous => Engine::BlockWindows(size),
            Storage::Chunked { .. } | Storage::LastAxis { .. } => Engine::ChunkWindows(size),
        },
        reason: reason(layout, size, holds_file),
        warning: match holds_file {
            true => None,
            false => warning(layout, size, stored * bands_per_block, budget_for),
        },
    }
}

/// Returns how many consecutive bands of `stored` bytes make a block: enough for large reads as long as
/// a window has plenty of blocks, and for small reads as long as it has enough.
fn bands_per_block(stored: u64, bands: u64, max_bands: u64) -> u64 {
    let large = (LARGE_READ / stored).min(max_bands / TARGET_BLOCKS);
    let small = (SMALL_READ / stored).min(max_bands / MIN_BLOCKS_PER_WINDOW);
    let mut count = large.max(small).max(1);
    // Windows have equal sizes, and may be smaller than the limit.
    while count > 1 && window_blocks(bands, max_bands, count) < MIN_BLOCKS_PER_WINDOW {
        count -= 1;
    }
    count
}

/// Returns the blocks of a window when an epoch is divided evenly into as few windows as `max_bands` allows.
fn window_blocks(bands: u64, max_bands: u64, bands_per_block: u64) -> u64 {
    let blocks = bands.div_ceil(bands_per_block);
    let windows = blocks.div_ceil((max_bands / bands_per_block).max(1));
    blocks.div_ceil(windows)
}

fn reason(layout: Layout, size: WindowSize, holds_file: bool) -> String {
    let stored = match layout.storage {
        Storage::Contiguous => format!(
            "rows are contiguous and small ({}), so they are read in blocks of {}",
            Bytes(layout.row_bytes),
            size.block_rows
        ),
        Storage::Chunked { .. } => {
            "rows are stored in chunks, which can only be read as a whole".to_owned()
        }
        Storage::LastAxis { .. } => {
            "rows are on the last axis, so that many are read together".to_owned()
        }
    };
    if holds_file {
        format!("{stored}; one window holds all {} rows", layout.rows)
    } else {
        format!(
            "{stored}; a window holds {} random blocks of {} rows ({})",
            size.window_blocks,
            size.block_rows,
            Bytes(size.block_rows * layout.row_bytes)
        )
    }
}

/// Returns the drawback of a window size: an uneven shuffle, or slow reads.
fn warning(
    layout: Layout,
    size: WindowSize,
    read: u64,
    budget_for: impl Fn(u64) -> u64,
) -> Option<String> {
    // Windows have equal sizes, so a window has so many blocks when an epoch has few enough windows.
    let budget = |block_rows: u64| {
        let blocks = layout.rows.div_ceil(block_rows);
        let windows = ((blocks - 1) / (MIN_BLOCKS_PER_WINDOW - 1)).max(1);
        let bytes =
            blocks.div_ceil(windows).saturating_mul(block_rows).saturating_mul(layout.row_bytes);
        let budget = Bytes(budget_for(bytes));
        format!("a memory budget of {budget} ({} bytes)", budget.0)
    };
    if size.window_blocks < MIN_BLOCKS_PER_WINDOW {
        return Some(format!(
            "a window holds only {} blocks, but an even shuffle of a sorted file needs \
             {MIN_BLOCKS_PER_WINDOW}; {} is enough, and so are smaller chunks",
            size.window_blocks,
            budget(layout.band_rows())
        ));
    }
    if read < TINY_READ {
        let bands = SMALL_READ.div_ceil((read * layout.band_rows() / size.block_rows).max(1));
        return Some(format!(
            "reads of only {} get a quarter of a disk's bandwidth at best; with {}, reads have {}",
            Bytes(read),
            budget(layout.band_rows().saturating_mul(bands)),
            Bytes(SMALL_READ)
        ));
    }
    None
}
