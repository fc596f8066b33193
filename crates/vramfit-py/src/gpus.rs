//! The catalog of GPUs, for `vramfit.gpus`.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use vramfit_analysis::Bytes;
use vramfit_model::gpu::{self, Certainty, GpuSelection};

use crate::error::raise;

/// A GPU model, or a MIG slice of one, as the driver and XLA see it.
#[pyclass(frozen, eq, module = "vramfit.gpus")]
#[derive(Clone, PartialEq)]
pub(crate) struct Gpu(gpu::Gpu);

#[pymethods]
impl Gpu {
    /// The name used on the command line, such as `h100-80g`.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Other names of this GPU.
    #[getter]
    fn aliases(&self) -> Vec<String> {
        self.0.aliases.clone()
    }

    /// Its name in the driver.
    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    /// Compute capability, such as `(9, 0)`.
    #[getter]
    fn compute_capability(&self) -> (u32, u32) {
        self.0.compute_capability
    }

    /// Total device memory in bytes: the lowest that drivers report on Linux.
    #[getter]
    fn total_memory_bytes(&self) -> u64 {
        self.0.total_memory_bytes
    }

    /// The highest total that drivers report on Linux; equal to `total_memory_bytes` where one is known.
    #[getter]
    fn max_total_memory_bytes(&self) -> u64 {
        self.0.max_total_memory_bytes
    }

    /// True if no driver's report of `total_memory_bytes` is known.
    #[getter]
    fn memory_is_estimated(&self) -> bool {
        self.0.memory_certainty == Certainty::Estimated
    }

    /// Streaming multiprocessors.
    #[getter]
    fn core_count(&self) -> u32 {
        self.0.core_count
    }

    /// Memory bandwidth in bytes per second.
    #[getter]
    fn bandwidth_bytes_per_s(&self) -> u64 {
        self.0.bandwidth_bytes_per_s
    }

    /// Dense peak rates in 10^12 operations per second, by number type; unknown ones are absent.
    #[getter]
    fn peak_tflops<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rates = PyDict::new(py);
        for (dtype, rate) in self.0.peak_tflops.known() {
            rates.set_item(dtype, rate)?;
        }
        Ok(rates)
    }

    /// Where the figures come from.
    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    fn __repr__(&self) -> String {
        format!("<Gpu {}: {}>", self.0.name, Bytes(self.0.total_memory_bytes))
    }
}

/// Returns every GPU of the catalog.
#[pyfunction]
pub(crate) fn all_gpus() -> Vec<Gpu> {
    gpu::all().iter().cloned().map(Gpu).collect()
}

#[pyfunction]
pub(crate) fn find_gpu(py: Python<'_>, name: &str) -> PyResult<Gpu> {
    gpu::find(name).map(Gpu).map_err(|error| raise(py, &error))
}

/// Returns model and number of GPUs as options name them, such as `h100-80gx8`.
#[pyfunction]
pub(crate) fn parse_gpus(py: Python<'_>, text: &str) -> PyResult<(String, u32)> {
    let selection: GpuSelection = text.parse().map_err(|error| raise(py, &error))?;
    Ok((selection.gpu.name, selection.count))
}
