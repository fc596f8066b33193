//! Lets Python in: the extension module `vramfit._native`. Names only; what they do lies elsewhere.

use pyo3::prelude::*;

mod cli;

/// The Rust half of vramfit.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("__all__", ["__version__", "run_cli"])?;
    module.add_function(wrap_pyfunction!(cli::run_cli, module)?)
}
