//! What holds the memory: CUDA's driver or JAX.

use serde::Serialize;
use vramfit_core::Result;

/// Where memory is taken from, before anything was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// The number of the GPU.
    pub(super) gpu: u32,
    /// What the GPU is sold as.
    pub(super) gpu_name: String,
    /// Who hands the memory out, in words: `the card`, `JAX's pool`.
    pub(super) whose: &'static str,
    /// All of it that can be used. JAX's `platform` allocator tells none.
    pub(super) total_bytes: Option<u64>,
    /// What can still be had; as much as there are numbers where that is not known.
    pub(super) free_bytes: u64,
}

/// Someone else who holds memory of the GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Other {
    pub(super) pid: u32,
    pub(super) used_bytes: Option<u64>,
    pub(super) command: Option<String>,
    pub(super) user: Option<String>,
    pub(super) container: Option<String>,
}

/// What a check of the held memory found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    /// Bytes that were asked for and got.
    pub(super) held_bytes: u64,
    /// How much less is free than before, as the driver or JAX's allocator counts.
    pub(super) counted_bytes: u64,
    /// Whether what was written was read back; `None` when nothing could be written.
    pub(super) read_back: Option<bool>,
    /// What was wrong, or why nothing could be written.
    pub(super) note: Option<String>,
}

impl Verdict {
    /// Says whether the memory is there, as far as could be told.
    pub(super) fn is_right(&self) -> bool {
        self.read_back != Some(false) && self.counted_bytes >= self.held_bytes
    }
}

/// Takes memory and gives it back when it is dropped.
pub(super) trait Holder {
    /// Where the memory is taken from.
    fn room(&self) -> &Room;

    /// Who else holds memory of the GPU, as far as the driver tells; largest first.
    fn others(&self) -> Vec<Other>;

    /// Takes so many bytes more, in one piece. Returns whether they were to be had.
    fn take(&mut self, bytes: u64) -> Result<bool>;

    /// What can still be had, if that is known.
    fn free_bytes(&mut self) -> Result<Option<u64>>;

    /// Checks that what is held is there.
    fn verify(&mut self) -> Result<Verdict>;
}
