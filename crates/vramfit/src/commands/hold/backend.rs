//! What allocates the memory: the CUDA driver or JAX.

use serde::Serialize;
use vramfit_analysis::Result;

/// The memory to allocate from, before the first allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryStatus {
    /// Index of the GPU.
    pub(super) gpu: u32,
    pub(super) gpu_name: String,
    /// What the memory is allocated from, in messages: `the GPU`, `JAX's pool`.
    pub(super) source: &'static str,
    /// Memory that can be used; unknown with JAX's `platform` allocator.
    pub(super) total_bytes: Option<u64>,
    /// Free memory; `u64::MAX` if unknown.
    pub(super) free_bytes: u64,
}

/// Another process that uses memory of the GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct OtherProcess {
    pub(super) pid: u32,
    pub(super) used_bytes: Option<u64>,
    pub(super) command: Option<String>,
    pub(super) user: Option<String>,
    pub(super) container: Option<String>,
}

/// Result of `--verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Verification {
    pub(super) allocated_bytes: u64,
    /// Decrease of free memory, as the driver or JAX's allocator reports it.
    pub(super) counted_bytes: u64,
    /// Whether the data that was written was read back; `None` if nothing could be written.
    pub(super) read_back: Option<bool>,
    /// What was wrong, or why nothing could be written.
    pub(super) note: Option<String>,
}

impl Verification {
    /// Returns whether nothing contradicts the allocation.
    pub(super) fn matches(&self) -> bool {
        self.read_back != Some(false) && self.counted_bytes >= self.allocated_bytes
    }
}

/// Allocates memory, and frees it on drop.
pub(super) trait Backend {
    /// Returns the memory to allocate from.
    fn status(&self) -> &MemoryStatus;

    /// Lists other processes that use the memory, as far as the driver reports them; largest first.
    fn other_processes(&self) -> Vec<OtherProcess>;

    /// Allocates one more block. Returns false if there is not enough memory.
    fn allocate(&mut self, bytes: u64) -> Result<bool>;

    /// Returns the free memory, if it is known.
    fn free_bytes(&mut self) -> Result<Option<u64>>;

    /// Verifies the allocated memory.
    fn verify(&mut self) -> Result<Verification>;
}
