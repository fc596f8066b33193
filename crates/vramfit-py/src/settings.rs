//! Memory options of a Python program and the variables that its JAX reads, for
//! `vramfit.jax_memory_fix`.

use std::collections::HashMap;

use pyo3::prelude::*;
use vramfit_analysis::{Bytes, Result};
use vramfit_gpu::GpuOverrides;
use vramfit_model::allocator;
use vramfit_model::settings::{self, Assignment, Options, ReadAt, Target, Version};

use crate::error::raise;

/// A variable with a value, and why it has that.
#[pyclass(frozen, get_all, module = "vramfit._native")]
#[derive(Clone)]
pub(crate) struct Setting {
    name: &'static str,
    value: String,
    reason: String,
    /// Whether JAX reads it while it is imported.
    read_at_import: bool,
}

impl From<Assignment> for Setting {
    fn from(assignment: Assignment) -> Self {
        let setting = settings::find(assignment.name);
        Setting {
            name: assignment.name,
            value: assignment.value,
            reason: assignment.reason,
            read_at_import: setting.is_some_and(|setting| setting.read_at == ReadAt::Import),
        }
    }
}

/// What options become in one environment.
#[pyclass(frozen, get_all, module = "vramfit._native")]
pub(crate) struct ResolvedSettings {
    set: Vec<Setting>,
    removed: Vec<&'static str>,
    /// What takes precedence over a default.
    kept: Vec<Setting>,
    notes: Vec<String>,
}

impl From<settings::ResolvedSettings> for ResolvedSettings {
    fn from(settings: settings::ResolvedSettings) -> Self {
        let list = |assignments: Vec<Assignment>| assignments.into_iter().map(Into::into).collect();
        ResolvedSettings {
            set: list(settings.set),
            removed: settings.removed,
            kept: list(settings.kept),
            notes: settings.notes,
        }
    }
}

/// Decides what to do to `environment` for a JAX of version `jax`, `None` if unknown.
///
/// Sizes are texts such as `8GiB`. With `detailed` the driver is asked also where its answer only makes
/// reasons and notes more detailed.
#[pyfunction]
#[pyo3(signature = (
    environment, jax, *, fraction=None, limit=None, processes=None, keep_free=None, allocator=None,
    preallocate=None, require_gpu=None, remat=None, x64=None, jit=None, host_devices=None,
    detailed=true,
))]
#[allow(clippy::too_many_arguments, reason = "arguments from Python come by name")]
pub(crate) fn resolve_settings(
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
    detailed: bool,
) -> PyResult<ResolvedSettings> {
    let resolve = move || -> Result<ResolvedSettings> {
        let options = Options {
            spill: None,
            fraction,
            limit: limit.map(Bytes::parse_memory).transpose()?,
            processes,
            keep_free: keep_free.map(Bytes::parse_memory).transpose()?,
            allocator: allocator.map(str::parse).transpose()?,
            preallocate,
            require_gpu,
            remat,
            latency_hiding: None,
            x64,
            jit,
            host_devices,
        };
        let variable = |name: &str| environment.get(name).cloned();
        let target = Target {
            jax: jax.and_then(|text| text.parse().ok()),
            variable: &variable,
            gpu_budgets: &|| GpuOverrides::default().gpu_budgets(variable),
            detailed,
            repair: true,
            defaults: true,
        };
        settings::resolve(&options, &target).map(Into::into)
    };
    py.detach(resolve).map_err(|error| raise(py, &error))
}

/// Returns the limit of the pool on each GPU, as `environment` says to JAX `jax`; `None` where that
/// cannot be known.
#[pyfunction]
pub(crate) fn expected_pools(
    py: Python<'_>,
    environment: HashMap<String, String>,
    jax: &str,
) -> PyResult<Option<Vec<u64>>> {
    let expected = move || {
        let version: Version = jax.parse()?;
        let variable = |name: &str| environment.get(name).cloned();
        settings::expected_pool_limits(version, variable, || {
            GpuOverrides::default().gpu_budgets(variable)
        })
    };
    py.detach(expected).map_err(|error| raise(py, &error))
}

/// Returns the total memory of the largest GPU that JAX may use; `None` where that is unknown.
#[pyfunction]
pub(crate) fn largest_gpu_bytes(py: Python<'_>) -> Option<u64> {
    let budgets = py.detach(|| GpuOverrides::default().budgets(|name| std::env::var(name).ok()));
    budgets.ok()?.iter().map(|budget| budget.total_bytes).max()
}

/// Returns `true` if a pool that preallocates obtained all that its limit allows, from `bytes_limit` and
/// `pool_bytes` of `Device.memory_stats()`.
#[pyfunction]
pub(crate) fn is_fully_preallocated(limit_bytes: u64, pool_bytes: u64) -> bool {
    allocator::is_fully_preallocated(limit_bytes, pool_bytes)
}

/// Parses an amount of memory such as `8GiB`.
#[pyfunction]
pub(crate) fn parse_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    Bytes::parse_memory(text).map(|bytes| bytes.0).map_err(|error| raise(py, &error))
}

/// Formats a size, such as `8.0 GiB`.
#[pyfunction]
pub(crate) fn show_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}
