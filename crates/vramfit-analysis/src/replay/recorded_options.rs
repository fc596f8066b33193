//! From the header of a trace to the allocators of its run.

use crate::allocator::{AllocatorKind, JaxVersion, PoolOptions};
use crate::error::{Error, Result};
use crate::trace::Header;

/// Reads the allocators' options from a header.
pub(super) fn pool_options(header: &Header) -> Result<PoolOptions> {
    let kind: AllocatorKind = header.allocator.parse().map_err(|error: Error| {
        let what = format!("the trace names the unknown allocator `{}`", header.allocator);
        Error::invalid_file(what).cause(error)
    })?;
    Ok(PoolOptions {
        kind,
        ordinal: 0,
        total_memory_bytes: header.total_memory_bytes(),
        memory_fraction: header.memory_fraction,
        memory_cap: header.memory_cap,
        preallocate: header.preallocate,
        spatial_partitioning: header.spatial_partitioning,
        unified_memory: header.unified_memory,
        cuda_async_prealloc: header.cuda_async_prealloc,
        collective_memory_bytes: header.collective_memory_bytes,
        jax_version: jax_version(&header.jax),
    })
}

/// Reads `0.10.2` or `0.10.2.dev20260601`; what is missing or no number is 0.
fn jax_version(text: &str) -> JaxVersion {
    let mut parts = text.split('.').map(|part| {
        let digits = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or(0)
    });
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

/// Returns what the driver can give to the pools of one GPU that nobody shares, going by the header.
///
/// # Errors
/// As [`pool_options`].
pub(crate) fn allocatable_bytes(header: &Header) -> Result<u64> {
    Ok(pool_options(header)?.allocatable_bytes(header.free_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_jax_writes_them() {
        for (text, version) in [
            ("0.10.2", (0, 10, 2)),
            ("0.11.0.dev20260801", (0, 11, 0)),
            ("0.9.2rc1", (0, 9, 2)),
            ("1", (1, 0, 0)),
            ("", (0, 0, 0)),
        ] {
            assert_eq!(jax_version(text), version, "{text}");
        }
    }
}
