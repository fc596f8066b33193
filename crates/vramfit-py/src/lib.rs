//! Lets Python in: the extension module `vramfit._native`. Names only; what they do lies elsewhere.

use pyo3::prelude::*;

mod cli;
mod plugin;

pub use plugin::GetPjrtApi;

/// The Rust half of vramfit.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add(
        "__all__",
        ["__version__", "finish_plugin", "run_cli", "start_plugin"],
    )?;
    module.add_function(wrap_pyfunction!(plugin::start_plugin, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::finish_plugin, module)?)?;
    module.add_function(wrap_pyfunction!(cli::run_cli, module)?)
}
