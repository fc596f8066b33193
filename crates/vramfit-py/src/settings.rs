//! From what a Python program wants to the variables that its JAX reads, for
//! `vramfit.jax_memory_fix`.

use std::collections::HashMap;

use pyo3::prelude::*;
use vramfit::Wishes;
use vramfit_core::settings::{self, ReadAt, Version};
use vramfit_core::{Bytes, Result, allocator};

use crate::error::raise;

/// Name, value, why, and whether JAX reads it while it is imported.
type Set = (String, String, String, bool);

/// What to set, names to remove, defaults that yield (name, value, why), and notes.
type Decided = (
    Vec<Set>,
    Vec<String>,
    Vec<(String, String, String)>,
    Vec<String>,
);

/// Decides what to do to `environment` for a JAX of version `jax`, `None` if not known.
///
/// Amounts are texts such as `8GiB`. With `look_at_cards` the driver is asked also where its answer
/// only lets more be told.
#[pyfunction]
#[pyo3(signature = (
    environment, jax, *, fraction=None, limit=None, processes=None, keep_free=None, allocator=None,
    preallocate=None, require_gpu=None, remat=None, x64=None, jit=None, host_devices=None,
    look_at_cards=true,
))]
#[allow(
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    reason = "arguments from Python come by value and by name"
)]
pub(crate) fn decide_settings(
    py: Python<'_>,
    environment: HashMap<String, String>,
    jax: Option<&str>,
    fraction: Option<f64>,
    limit: Option<&str>,
    processes: Option<u32>,
    keep_free: Option<&str>,
    allocator: Option<&str>,
    preallocate: Option<bool>,
    require_gpu: Option<bool>,
    remat: Option<bool>,
    x64: Option<bool>,
    jit: Option<bool>,
    host_devices: Option<u32>,
    look_at_cards: bool,
) -> PyResult<Decided> {
    let decide = || -> Result<Decided> {
        let wishes = Wishes {
            fraction,
            limit: limit.map(str::parse).transpose()?,
            processes,
            keep_free: keep_free.map(str::parse).transpose()?,
            allocator: allocator.map(str::parse).transpose()?,
            preallocate,
            require_gpu,
            remat,
            x64,
            jit,
            host_devices,
            look_at_cards,
        };
        let version = jax.and_then(|text| text.parse().ok());
        let decision = wishes.settings(version, |name| environment.get(name).cloned())?;
        let kept = decision.kept.into_iter();
        Ok((
            decision.changes.set.into_iter().map(told).collect(),
            decision
                .changes
                .remove
                .into_iter()
                .map(str::to_owned)
                .collect(),
            kept.map(|(name, value, why)| (name.to_owned(), value, why))
                .collect(),
            decision.changes.notes,
        ))
    };
    py.detach(decide).map_err(|error| raise(py, &error))
}

fn told(set: settings::Assignment) -> Set {
    let at_import = settings::lookup(set.name).is_some_and(|s| s.read_at == ReadAt::Import);
    (set.name.to_owned(), set.value, set.reason, at_import)
}

/// Returns what the pool on each card may take, by what `environment` says to JAX `jax`; `None`
/// where that cannot be told from it.
#[pyfunction]
#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python come by value"
)]
pub(crate) fn expected_pools(
    py: Python<'_>,
    environment: HashMap<String, String>,
    jax: &str,
) -> PyResult<Option<Vec<u64>>> {
    let expected = || {
        let version: Version = jax.parse()?;
        vramfit::expected_pools(version, |name| environment.get(name).cloned())
    };
    py.detach(expected).map_err(|error| raise(py, &error))
}

/// Says whether a pool that preallocates obtained all that its limit allows, from `bytes_limit` and
/// `pool_bytes` of `Device.memory_stats()`.
#[pyfunction]
pub(crate) fn is_fully_preallocated(limit_bytes: u64, pool_bytes: u64) -> bool {
    allocator::is_fully_preallocated(limit_bytes, pool_bytes)
}

/// Reads an amount of memory, such as `8GiB`.
#[pyfunction]
pub(crate) fn parse_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    let bytes: Result<Bytes> = text.parse();
    bytes
        .map(|bytes| bytes.0)
        .map_err(|error| raise(py, &error))
}

/// Writes an amount of memory, such as `8.0 GiB`.
#[pyfunction]
pub(crate) fn show_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
