//! The lines of the dump that a pool logs when a request fails.

use serde::Serialize;

use super::LoggedChunk;
use super::number::Size;

/// A line of the dump that a BFC pool logs when a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DumpLine {
    /// `BFCAllocator dump for GPU_0_bfc`
    Begin,
    /// `Bin (256): Total Chunks: 3, Chunks in use: 2. …`
    Bin(BinFigures),
    /// `Next region of size 63707234304`
    Region { bytes: u64 },
    /// `InUse at 7f0000000000 of size 256 next 1`
    Chunk(LoggedChunk),
    /// `Sum Total of in-use chunks: 54.10GiB`
    InUse { size: Size },
    /// The pool's own figures, in one of three wordings.
    Pool(PoolFigures),
    /// `Stats:` and the lines below it.
    Stats(PoolStats),
    /// The map of 100 characters.
    Map { cells: String },
}

/// What a dump says of the whole pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolFigures {
    pub(super) pool: Size,
    pub(super) limit: Size,
    /// The size of the next region that the pool would ask for.
    pub(super) next_region: Option<Size>,
    /// The largest free chunk that the request could have.
    pub(super) largest_usable: Option<Size>,
    /// Free chunks together.
    pub(super) free: Option<Size>,
    /// Whether the pool grows; older releases do not say it.
    pub(super) grows: Option<bool>,
}

/// The statistics of a pool, as its dump shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolStats {
    pub(super) limit: Option<Size>,
    pub(super) in_use: Option<Size>,
    pub(super) peak_in_use: Option<Size>,
    pub(super) largest_free_block: Option<Size>,
}

/// What a size class of the pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BinFigures {
    /// The smallest size in it.
    pub min_bytes: u64,
    /// Chunks in it.
    pub chunks: u64,
    /// Those in use.
    pub chunks_in_use: u64,
    /// Their bytes, as precise as the log shows them.
    pub bytes: u64,
    /// Bytes of those in use.
    pub bytes_in_use: u64,
}
