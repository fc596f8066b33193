//! The cards vramfit knows, and what XLA's compiler is told about each.

use serde::Serialize;

use crate::error::Result;

/// One graphics card (or a MIG slice of one) as the driver and XLA see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// The name used on the command line, such as `h100-80g`.
    pub name: String,
    /// What the driver calls it, such as `NVIDIA H100 80GB HBM3`.
    pub description: String,
    /// Compute capability, such as `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Total device memory in bytes, as the driver reports it.
    pub total_memory_bytes: u64,
    /// Streaming multiprocessors.
    pub core_count: u32,
}

/// Returns the card of that name.
///
/// # Errors
/// [`crate::ErrorKind::UnknownGpu`] with the nearest names as a hint.
pub fn find(name: &str) -> Result<Gpu> {
    Err(crate::Error::new(crate::ErrorKind::UnknownGpu, format!("no card is called `{name}`")))
}
