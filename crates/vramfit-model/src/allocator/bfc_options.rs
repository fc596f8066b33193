//! What decides how a BFC pool behaves.

use super::config::JaxVersion;

/// What decides how a BFC pool behaves.
#[derive(Clone, Debug)]
pub struct BfcOptions {
    /// The name in log lines; `GPU_0_bfc` for the first GPU.
    pub name: String,
    /// What the pool may take from the GPU at most.
    pub limit_bytes: u64,
    /// False takes the whole limit at the first request (JAX: `preallocate`).
    pub grows: bool,
    /// What a partitioned pool takes at the first request to extend it later, up to the limit; both are whole pages
    /// of 2 MiB. `None` takes the limit, once and for all. Only partitioned pools read it.
    pub start_bytes: Option<u64>,
    /// Gives wholly free regions back before failing. JAX leaves it off.
    pub garbage_collection: bool,
    /// The surplus above which a chunk is always split, as a part of the limit; 0 means 128 MiB.
    pub fragmentation_fraction: f64,
    /// What becomes of requests that the GPU refuses.
    pub backpedal: Backpedal,
    /// Whether `largest_free_block_bytes` is filled, as since JAX 0.11.
    pub reports_largest_free_block: bool,
    /// The release of JAX whose texts are wanted.
    pub jax_version: JaxVersion,
}

impl Default for BfcOptions {
    /// XLA as it was when the recordings in `fixtures/bfc` were made, with an empty limit.
    fn default() -> Self {
        BfcOptions {
            name: "GPU_0_bfc".to_owned(),
            limit_bytes: 0,
            grows: false,
            start_bytes: None,
            garbage_collection: false,
            fragmentation_fraction: 0.0,
            backpedal: Backpedal::Up,
            reports_largest_free_block: true,
            jax_version: (0, 11, 2),
        }
    }
}

/// What becomes of a request that the GPU refused, after it was made a tenth smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backpedal {
    /// Rounded up to 256 bytes. At 2,304 bytes that changes nothing any more, and XLA never returns.
    /// Up to JAX 0.11.0.
    UpForEver,
    /// Rounded up, but at least 256 bytes smaller than before. JAX 0.11.1 and 0.11.2.
    Up,
    /// Rounded down. From JAX 0.12 on.
    Down,
}
