//! Buffers that JAX holds, and how it releases them.

use pyo3::prelude::*;

/// Whether JAX is initialized, so that it may hold batches that no Python object refers to.
pub(crate) fn is_jax_running(py: Python<'_>) -> bool {
    let backends = || {
        let modules = py.import("sys")?.getattr("modules")?;
        let bridge = modules.get_item("jax._src.xla_bridge")?;
        bridge.getattr("_backends")?.is_truthy()
    };
    // JAX is not imported, or keeps its backends elsewhere in this release.
    backends().unwrap_or(false)
}

/// Waits for JAX's computations and transfers, which read from batches.
pub(crate) fn wait_for_jax(py: Python<'_>) -> PyResult<()> {
    if !is_jax_running(py) {
        return Ok(());
    }
    let jax = py.import("jax")?;
    for array in jax.call_method0("live_arrays")?.try_iter()? {
        // Failed computations and deleted arrays are no concern of the loader.
        let _ = array?.call_method0("block_until_ready");
    }
    Ok(())
}

/// Whether the program has other threads, which may drop batches.
pub(crate) fn has_other_threads(py: Python<'_>) -> PyResult<bool> {
    let count = py.import("threading")?.call_method0("active_count")?;
    Ok(count.extract::<usize>()? > 1)
}

/// Makes JAX release buffers that it no longer uses.
///
/// JAX puts the inputs of a finished computation or transfer on a list, which its next call or Python's
/// garbage collector processes. While the program waits for a batch it makes no such call, so without this it could
/// wait forever.
pub(crate) fn collect_unreferenced_buffers(py: Python<'_>) -> PyResult<()> {
    // The youngest generation is the cheapest, and JAX's callback runs for any.
    py.import("gc")?.call_method1("collect", (0,)).map(drop)
}
