//! The extension module `vramfit._native`: Python bindings, and the library of the PJRT plugin.

use pyo3::prelude::*;

mod array_holders;
mod batch_memory;
mod cli;
mod data;
mod error;
mod exit;
mod explain;
mod gpus;
mod jax_buffers;
mod loader;
mod plugin;
mod report;
mod row_writer;
mod rows;
mod safetensors;
mod settings;

pub use plugin::GetPjrtApi;

/// The Rust half of vramfit.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // What is measured says of which build it is.
    module.add("is_release", !cfg!(debug_assertions))?;
    module.add_class::<gpus::Gpu>()?;
    module.add_class::<report::NativeReport>()?;
    module.add_class::<loader::BatchLoader>()?;
    module.add_class::<batch_memory::BatchMemory>()?;
    module.add_class::<plugin::UnrecordedReads>()?;
    module.add_class::<rows::RowReader>()?;
    module.add_class::<row_writer::RowWriter>()?;
    module.add_class::<settings::ResolvedSettings>()?;
    module.add_class::<settings::Setting>()?;
    module.add_function(wrap_pyfunction!(gpus::all_gpus, module)?)?;
    module.add_function(wrap_pyfunction!(gpus::find_gpu, module)?)?;
    module.add_function(wrap_pyfunction!(gpus::parse_gpus, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::start_plugin, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::start_publisher, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::finish_plugin, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::record_settings, module)?)?;
    module.add_function(wrap_pyfunction!(array_holders::note_array_holders, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::note_cpu_program, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::settings_too_late, module)?)?;
    module.add_function(wrap_pyfunction!(exit::ask_main_thread_to_exit, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::executions, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::further_steps, module)?)?;
    module.add_function(wrap_pyfunction!(plugin::hold_other_threads, module)?)?;
    module.add_function(wrap_pyfunction!(explain::explain_failure, module)?)?;
    module.add_function(wrap_pyfunction!(explain::write_process_state, module)?)?;
    module.add_function(wrap_pyfunction!(report::read_report, module)?)?;
    module.add_function(wrap_pyfunction!(report::read_estimate, module)?)?;
    module.add_function(wrap_pyfunction!(settings::resolve_settings, module)?)?;
    module.add_function(wrap_pyfunction!(settings::expected_pools, module)?)?;
    module.add_function(wrap_pyfunction!(settings::is_fully_preallocated, module)?)?;
    module.add_function(wrap_pyfunction!(settings::parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(settings::largest_gpu_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(settings::show_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(data::read_hdf5_rows, module)?)?;
    module.add_function(wrap_pyfunction!(loader::compute_column_statistics, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::write_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(cli::run_cli, module)?)
}
