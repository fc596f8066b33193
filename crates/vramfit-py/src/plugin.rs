//! The PJRT plugin's entry point, and the Python functions that the plugin calls.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;

use pyo3::call::PyCallArgs;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use vramfit_advice::lint::{self, LintInput};
use vramfit_model::program::memory::Names;
use vramfit_model::settings::{LateChange, ProcessStage};
use vramfit_model::trace::{CallbackSkip, CpuProgram, RunEnvironment, UncaughtError};
use vramfit_vgpu::{
    CallbackOutcome, DeclaredValue, Evaluation, Hooks, HostArray, HostInput, InputsByHost,
    ProgramDescription, ProgramInterface, ProgramSlice, ReadSite, ReadUse,
};

use crate::exit::call_python;

/// Returns the table of PJRT functions. JAX looks this symbol up in the library it is told to load.
#[unsafe(no_mangle)]
#[allow(non_snake_case, unsafe_code, reason = "the name is the API's")]
pub extern "C" fn GetPjrtApi() -> *const c_void {
    vramfit_vgpu::api()
}

/// Prepares the plugin before JAX loads it.
///
/// `library` is the real CUDA plugin; `cpu_eval` and `shutdown` are the modules `_cpu_eval` and `_shutdown`,
/// whose functions the plugin calls while it runs.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python come by value")]
pub(crate) fn start_plugin(
    py: Python<'_>,
    library: PathBuf,
    cpu_eval: Py<PyAny>,
    shutdown: Py<PyAny>,
) -> PyResult<()> {
    vramfit_vgpu::set_library(&library);
    let read = cpu_eval.getattr(py, "read")?;
    vramfit_vgpu::set_hooks(Box::new(PythonHooks { cpu_eval, read, shutdown }));
    Ok(())
}

/// Prepares to publish statistics of the real CUDA plugin `library` for JAX `jax`: the table that JAX
/// then gets from this library is the real one, wrapped to publish the statistics of the pool.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python come by value")]
pub(crate) fn start_publisher(library: PathBuf, jax: &str) {
    vramfit_vgpu::set_library(&library);
    vramfit_vgpu::set_jax_version(jax);
    vramfit_vgpu::enable_passthrough();
}

/// A change of the environment: name, old value, new value, line, and how far JAX had come (`before`,
/// `imported`, `discovered`, `started`).
type Change = (String, Option<String>, Option<String>, String, String);

/// Records the settings of the run in its trace: the environment as JAX has read it, which of its
/// variables the command set itself, what the program changed since, and the versions of libraries that
/// use JAX, and of those that allocate GPU memory of their own.
#[pyfunction]
pub(crate) fn record_settings(
    py: Python<'_>,
    environment: HashMap<String, String>,
    own: Vec<String>,
    late: Vec<Change>,
    libraries: BTreeMap<String, String>,
    gpu_libraries: BTreeMap<String, String>,
) {
    let settings = RunEnvironment {
        libraries,
        gpu_libraries,
        ..RunEnvironment::of_process(environment, own, late_changes(late))
    };
    py.detach(|| vramfit_vgpu::record_settings(settings));
}

/// Notes in the trace that a program of the user's has run on JAX's CPU backend.
#[pyfunction]
pub(crate) fn note_cpu_program(
    py: Python<'_>,
    name: String,
    site: String,
    needed_bytes: u64,
    backward: bool,
    products: bool,
    selected_by: String,
) {
    let program = CpuProgram { name, site, needed_bytes, backward, products, selected_by };
    py.detach(|| vramfit_vgpu::note_cpu_program(program));
}

/// Returns a message for each of the changes that come too late for JAX `jax`, for standard error.
#[pyfunction]
pub(crate) fn settings_too_late(
    environment: HashMap<String, String>,
    late: Vec<Change>,
    jax: Option<&str>,
) -> Vec<String> {
    let findings = lint::lint(&LintInput {
        environment: environment.into_iter().collect(),
        jax: jax.and_then(|text| text.parse().ok()),
        late: late_changes(late),
        ..LintInput::default()
    });
    let late = findings.iter().filter(|finding| finding.id == "set-too-late");
    late.map(|finding| format!("{}; {}", finding.message, finding.fix)).collect()
}

fn late_changes(changes: Vec<Change>) -> Vec<LateChange> {
    let stage = |word: &str| match word {
        "imported" => ProcessStage::Imported,
        "discovered" => ProcessStage::Discovered,
        "started" => ProcessStage::Started,
        _ => ProcessStage::Before,
    };
    let changes = changes.into_iter();
    changes
        .map(|(name, old, new, site, word)| LateChange {
            name,
            old,
            new,
            site,
            stage: stage(&word),
        })
        .collect()
}

/// Ends publishing and the trace; to be called when the interpreter exits. `error` is what ends the
/// program, if it is an exception: its class, its message and its line.
#[pyfunction]
#[pyo3(signature = (error=None))]
pub(crate) fn finish_plugin(py: Python<'_>, error: Option<(String, String, String)>) {
    let error = error.map(|(name, message, site)| UncaughtError { name, message, site });
    py.detach(|| vramfit_vgpu::finish(error));
}

/// A result of `_cpu_eval.evaluate`.
struct PythonResult {
    value: Py<PyAny>,
    /// `_cpu_eval.read`.
    read: Py<PyAny>,
}

impl fmt::Debug for PythonResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PythonResult").finish_non_exhaustive()
    }
}

impl HostArray for PythonResult {
    fn read(&self) -> Option<Vec<u8>> {
        call_python(|py| {
            let bytes = self.read.call1(py, (&self.value,)).ok()?;
            // Not as a list of numbers, which would be made one by one.
            Some(bytes.cast_bound::<PyBytes>(py).ok()?.as_bytes().to_vec())
        })
    }
}

struct PythonHooks {
    cpu_eval: Py<PyAny>,
    /// `_cpu_eval.read`.
    read: Py<PyAny>,
    shutdown: Py<PyAny>,
}

/// The fields of a [`ProgramSlice`] in their order, as Python returns them.
type SliceFields = (Vec<usize>, Vec<usize>, u64, Vec<u8>, Vec<u8>);

fn to_slice(fields: SliceFields) -> ProgramSlice {
    let (outputs, parameters, largest_array_bytes, code, options) = fields;
    ProgramSlice { outputs, parameters, largest_array_bytes, code, options }
}

impl Hooks for PythonHooks {
    fn describe(&self, program: u32, description: &ProgramDescription<'_>) {
        call_python(|py| {
            let shardings = |shardings: &[Vec<u8>]| -> Vec<_> {
                shardings.iter().map(|bytes| PyBytes::new(py, bytes)).collect()
            };
            let description = (
                program,
                PyBytes::new(py, description.code),
                description.input_shapes.clone(),
                description.output_shapes.clone(),
                description.devices,
                PyBytes::new(py, description.options),
                shardings(description.parameter_shardings),
                shardings(description.output_shardings),
            );
            // A program that is not described cannot be run, which is no error.
            let _ = self.cpu_eval.call_method1(py, "register_program", description);
        });
    }

    fn evaluate(&self, program: u32, inputs: &[HostInput<'_>]) -> Evaluation {
        call_python(|py| {
            let argument = |input: &HostInput<'_>| match *input {
                HostInput::Bytes(bytes) => Some(PyBytes::new(py, bytes).into_any()),
                HostInput::Array(array) => {
                    let result = (array as &dyn Any).downcast_ref::<PythonResult>()?;
                    Some(result.value.bind(py).clone())
                }
            };
            let inputs: Vec<_> = inputs.iter().map(argument).collect::<Option<_>>()?;
            let outcome = self.cpu_eval.call_method1(py, "evaluate", (program, inputs));
            let outcome = outcome.ok()?.into_bound(py);
            if let Ok(results) = outcome.cast::<PyList>() {
                let values = results.iter().map(|result| {
                    Box::new(PythonResult { value: result.unbind(), read: self.read.clone_ref(py) })
                        as Box<dyn HostArray>
                });
                return Some(Evaluation::Outputs(values.collect()));
            }
            if let Ok(message) = outcome.extract::<String>() {
                return Some(Evaluation::Raised(message));
            }
            let (reason, seconds) = outcome.extract::<(String, f64)>().ok()?;
            let spent_ms = (seconds * 1e3) as u64;
            Some(Evaluation::OutOfBudget { reason, spent_ms })
        })
        // A program that the CPU cannot run is no error: its values stay unknown.
        .unwrap_or(Evaluation::Unsupported)
    }

    fn exchange_inputs(
        &self,
        program: &str,
        own: Option<&[u8]>,
        hosts: &[u32],
    ) -> Option<InputsByHost> {
        type Answer = Option<(Vec<Option<Vec<u8>>>, Option<String>)>;
        let arguments = (program, own, hosts.to_vec());
        let answer: Option<Answer> = call_python(|py| self.call(py, "exchange_inputs", arguments));
        let (bytes, assumption) = answer??;
        Some(InputsByHost { bytes, assumption })
    }

    fn record_assumption(&self, call: &str) {
        call_python(|py| {
            // A failure is no error: other hosts are then not asked.
            let _ = self.cpu_eval.call_method1(py, "record_assumption", (call,));
        });
    }

    fn slice_outputs(
        &self,
        code: &[u8],
        options: &[u8],
        local_parameters: &[bool],
        local_outputs: &[bool],
    ) -> Vec<ProgramSlice> {
        let arguments = (code, options, local_parameters.to_vec(), local_outputs.to_vec());
        let slices: Option<Vec<SliceFields>> =
            call_python(|py| self.call(py, "slice_outputs", arguments));
        slices.unwrap_or_default().into_iter().map(to_slice).collect()
    }

    fn slice_calls(
        &self,
        program: u32,
        code: &[u8],
        options: &[u8],
        local_parameters: &[bool],
    ) -> Option<ProgramSlice> {
        let arguments = (program, code, options, local_parameters.to_vec());
        let slice: Option<Option<SliceFields>> =
            call_python(|py| self.call(py, "slice_calls", arguments));
        slice.flatten().map(to_slice)
    }

    fn estimate_seconds(&self, program: u32, code: &[u8]) -> Option<f64> {
        call_python(|py| self.call(py, "estimate", (program, code)))
    }

    fn run_callbacks(&self, program: u32, code: &[u8], devices: usize) -> Vec<CallbackOutcome> {
        type Called = (String, u64, u64, String, u64, Option<usize>, Option<String>, u64);
        let called: Option<Vec<Called>> =
            call_python(|py| self.call(py, "run_callbacks", (program, code, devices)));
        let calls = called.unwrap_or_default().into_iter();
        let calls = calls.map(|(site, calls, errors, error, skipped, reason, parameter, bytes)| {
            let reason = reason.and_then(|number| CallbackSkip::ALL.get(number).copied());
            CallbackOutcome {
                site,
                calls,
                errors,
                error,
                skipped: reason.map(|reason| (skipped, reason)),
                deciding_parameter: parameter,
                argument_bytes: bytes,
            }
        });
        calls.collect()
    }

    fn cost_analysis(&self, module: &[u8]) -> Option<Vec<(String, f32)>> {
        call_python(|py| self.call(py, "costs", (module,)))
    }

    fn value_names(&self, code: &[u8]) -> Option<Names> {
        let names = call_python(|py| self.call(py, "names", (code,)));
        let (arguments, outputs, donated_in_vain, differentiated) = names?;
        Some(Names { arguments, outputs, donated_in_vain, differentiated })
    }

    fn program_interface(&self, code: &[u8]) -> Result<ProgramInterface, String> {
        type Values = Vec<(String, String, Vec<i64>)>;
        let declared = |values: Values| {
            let each = values.into_iter();
            each.map(|(memory_kind, element_type, dims)| DeclaredValue {
                memory_kind,
                element_type,
                dims,
            })
            .collect()
        };
        let ask = |py: Python<'_>| {
            let answer = self.cpu_eval.call_method1(py, "read_signature", (code,))?;
            answer.extract::<(Values, Values)>(py)
        };
        let (parameters, outputs) = call_python(|py| ask(py).map_err(|error| error.to_string()))?;
        Ok(ProgramInterface { parameters: declared(parameters), outputs: declared(outputs) })
    }

    fn on_compiled(&self, program: u32) {
        call_python(|py| {
            // A failure is no error: a program whose callbacks are not known is not run.
            let _ = self.cpu_eval.call_method1(py, "record_compiled", (program,));
        });
    }

    fn display_name(&self, file: &str) -> Option<String> {
        call_python(|py| self.call(py, "file_name", (file,)))
    }

    fn call_site(&self) -> Option<String> {
        call_python(|py| self.call(py, "site", ())?)
    }

    fn read_site(&self) -> Option<ReadSite> {
        let (line, number, expression): (String, usize, String) =
            call_python(|py| self.call(py, "read_site", ()))?;
        let uses = [ReadUse::Value, ReadUse::Shape, ReadUse::Decision, ReadUse::Constant];
        let purpose = uses.get(number).copied().unwrap_or_default();
        Some(ReadSite { line, purpose, expression })
    }

    fn request_exit(&self) {
        self.call_shutdown("start");
    }

    fn extra_step(&self) {
        self.call_shutdown("extra_step");
    }
}

impl PythonHooks {
    /// Calls a function of `_cpu_eval`. `None` where it raises an exception, or returns something else.
    fn call<'py, T: FromPyObjectOwned<'py>>(
        &self,
        py: Python<'py>,
        function: &str,
        arguments: impl PyCallArgs<'py>,
    ) -> Option<T> {
        let result = self.cpu_eval.bind(py).call_method1(function, arguments);
        result.ok()?.extract().ok()
    }

    fn call_shutdown(&self, what: &str) {
        call_python(|py| {
            // An exception in it is ignored: the run continues a little longer then.
            let _ = self.shutdown.call_method0(py, what);
        });
    }
}

/// Returns how many programs this process has executed on the virtual GPU.
#[pyfunction]
pub(crate) fn executions(py: Python<'_>) -> u64 {
    py.detach(vramfit_vgpu::executions)
}

/// Returns how many steps threads other than the main one have executed after the run was finished.
#[pyfunction]
pub(crate) fn further_steps() -> u64 {
    vramfit_vgpu::extra_steps()
}

/// Parks all threads but this one where they execute programs; to be called when the process ends.
#[pyfunction]
pub(crate) fn hold_other_threads(py: Python<'_>) {
    py.detach(vramfit_vgpu::park_other_threads);
}

/// A context in which reads of placeholders by this thread are not reported: their results are replaced.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct UnrecordedReads;

#[pymethods]
impl UnrecordedReads {
    #[new]
    fn new() -> Self {
        UnrecordedReads
    }

    fn __enter__(&self) {
        vramfit_vgpu::set_reads_unrecorded(true);
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, pyo3::types::PyTuple>) {
        vramfit_vgpu::set_reads_unrecorded(false);
    }
}
