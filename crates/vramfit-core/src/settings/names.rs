//! The variables of JAX's pool.

/// The fraction of a GPU's memory that the pool may use.
pub const FRACTION: &str = "XLA_CLIENT_MEM_FRACTION";
/// The only name of [`FRACTION`] in old releases. Newer ones read it too, but refuse both together.
pub const OLD_FRACTION: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
/// The allocator's name.
pub const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
/// Whether the pool takes its limit at startup.
pub const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
/// Options of the PJRT client, which JAX prefers to the variables above.
pub const CREATE_OPTIONS: &str = "JAX_PJRT_CLIENT_CREATE_OPTIONS";
/// Whether the pool is made of managed memory, which may be larger than the GPU's.
pub const UNIFIED_MEMORY: &str = "TF_FORCE_UNIFIED_MEMORY";
/// A name that no release of JAX has ever read, found in many projects.
pub const NONEXISTENT_LIMIT: &str = "JAX_PREALLOCATION_SIZE_LIMIT_BYTES";

/// Returns `true` if a value of [`PREALLOCATE`] turns preallocation off. JAX takes every other one for on.
pub fn turns_preallocation_off(value: &str) -> bool {
    matches!(value, "false" | "False" | "0")
}
