//! The variables of JAX's pool, and how a name is known to be meant for JAX or its plugin.

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

/// Returns whether a name has one of the prefixes that are checked.
pub fn is_jax_related(name: &str) -> bool {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let holds = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    starts(&["XLA_", "JAX_", "PJRT_", "NCCL_", "CUDA_VISIBLE", "CUDA_MODULE"])
        || (starts(&["TF_"]) && holds(&["GPU", "CUDA", "MEMORY", "BFC", "ALLOC"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrelated_names_are_ignored() {
        for name in ["PATH", "TF_CONFIG", "CUDA_HOME", "HOME", "MY_XLA_FLAGS", "TORCH_HOME"] {
            assert!(!is_jax_related(name), "{name}");
        }
        for name in ["XLA_FLAG", "JAX_X", "TF_GPU_ALOCATOR", "CUDA_VISIBLE_DIVICES", "NCCL_BUFSIZE"]
        {
            assert!(is_jax_related(name), "{name}");
        }
    }
}
