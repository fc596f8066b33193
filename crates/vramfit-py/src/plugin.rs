//! The PJRT plugin's entry point, and what the plugin asks of Python.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vramfit_vgpu::{Evaluation, Hooks};

/// Returns the table of PJRT functions. JAX looks this symbol up in the library it is told to load.
#[unsafe(no_mangle)]
#[allow(non_snake_case, unsafe_code, reason = "the name is the API's")]
pub extern "C" fn GetPjrtApi() -> *const c_void {
    vramfit_vgpu::api()
}

/// Prepares the plugin before JAX loads it.
///
/// `library` is the real CUDA plugin; `values` is a Python object with `evaluate` and `site`, which
/// the plugin calls while it runs.
#[pyfunction]
#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python come by value"
)]
pub(crate) fn start_plugin(library: PathBuf, values: Py<PyAny>) {
    vramfit_vgpu::set_library(&library);
    vramfit_vgpu::set_hooks(Box::new(PythonHooks { values }));
}

/// Ends the trace; to be called when the interpreter exits.
#[pyfunction]
pub(crate) fn finish_plugin(py: Python<'_>) {
    py.detach(vramfit_vgpu::finish);
}

struct PythonHooks {
    values: Py<PyAny>,
}

impl Hooks for PythonHooks {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Option<Vec<Vec<u8>>> {
        Python::attach(|py| {
            let inputs: Vec<_> = evaluation
                .inputs
                .iter()
                .map(|bytes| PyBytes::new(py, bytes))
                .collect();
            let shardings: Vec<_> = evaluation
                .output_shardings
                .iter()
                .map(|bytes| PyBytes::new(py, bytes))
                .collect();
            let result = self.values.call_method1(
                py,
                "evaluate",
                (
                    evaluation.program,
                    PyBytes::new(py, evaluation.code),
                    inputs,
                    evaluation.input_shapes.clone(),
                    evaluation.output_shapes.clone(),
                    evaluation.devices,
                    PyBytes::new(py, evaluation.options),
                    shardings,
                ),
            );
            // A program that the CPU cannot run is no error: its values stay unknown.
            result.ok()?.extract::<Option<Vec<Vec<u8>>>>(py).ok()?
        })
    }

    fn costs(&self, module: &[u8]) -> Option<Vec<(String, f32)>> {
        Python::attach(|py| {
            let module = PyBytes::new(py, module);
            let costs = self.values.call_method1(py, "costs", (module,));
            costs.ok()?.extract::<Vec<(String, f32)>>(py).ok()
        })
    }

    fn names(&self, code: &[u8]) -> Option<(Vec<String>, Vec<String>)> {
        Python::attach(|py| {
            let code = PyBytes::new(py, code);
            let names = self.values.call_method1(py, "names", (code,));
            names.ok()?.extract::<(Vec<String>, Vec<String>)>(py).ok()
        })
    }

    fn compiled(&self, program: u32) {
        Python::attach(|py| {
            // It only takes note; a program whose callbacks are not known is not run.
            let _ = self.values.call_method1(py, "compiled", (program,));
        });
    }

    fn site(&self) -> Option<String> {
        Python::attach(|py| {
            self.values
                .call_method0(py, "site")
                .ok()?
                .extract::<Option<String>>(py)
                .ok()?
        })
    }

    fn stop(&self) {
        // Runs in the main thread between two bytecodes, so the program ends as after `sys.exit`:
        // `finally` blocks and exit handlers run.
        #[allow(
            unsafe_code,
            reason = "there is no safe way to ask the main thread to stop"
        )]
        // SAFETY: the callback has the type Python asks for, and needs no argument.
        unsafe {
            pyo3::ffi::Py_AddPendingCall(Some(raise_system_exit), ptr::null_mut());
        }
    }
}

extern "C" fn raise_system_exit(_: *mut c_void) -> c_int {
    Python::attach(|py| PySystemExit::new_err(0).restore(py));
    -1
}
