//! Why a program ran out of memory, for `vramfit run`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::array_holders::{Holder, from_python};
use pyo3::prelude::*;
use vramfit_advice::explain::{ExplainOptions, LogScanner, ProcessState, Verdict, explain};
use vramfit_analysis::report::Report;
use vramfit_gpu::{GpuOverrides, describe_other_use};
use vramfit_model::settings::Version;

/// Lines of the text, besides those about others.
const MAX_LINES: usize = 20;

/// Returns why this program ran out of memory and what fixes it, from its log and its state, with who else holds memory
/// of the GPU now; `None` where memory is not the cause.
///
/// `environment` is what JAX has read of it, `command` how the program was started; empty if that is not known.
/// `array_holders` are the variables that hold arrays.
#[pyfunction]
pub(crate) fn explain_failure(
    py: Python<'_>,
    log: &[u8],
    environment: BTreeMap<String, String>,
    jax: Option<&str>,
    command: String,
    array_holders: Vec<Holder>,
) -> Option<String> {
    py.detach(|| {
        let mut scanner = LogScanner::new("");
        scanner.push(log);
        let gpus = GpuOverrides::default().gpus(variable).ok();
        let options = ExplainOptions {
            gpus,
            jax: jax.and_then(|jax| jax.parse().ok()).map(Version::into),
            command,
            process: Some(process_state(environment, array_holders)),
        };
        let explanation = explain(&scanner.finish(), &options);
        if explanation.verdict() != Verdict::Memory {
            return None;
        }
        let report = Report::from_failure(&explanation);
        let text = report.to_limited_text(MAX_LINES, "vramfit explain --full LOG");
        let others = describe_other_use(Some(std::process::id()), variable);
        Some(std::iter::once(text).chain(others).collect::<Vec<_>>().join("\n"))
    })
}

/// Writes the state of this process to a file, for the process that started it.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "arguments from Python come by value")]
pub(crate) fn write_process_state(
    path: PathBuf,
    environment: BTreeMap<String, String>,
    array_holders: Vec<Holder>,
) -> PyResult<()> {
    process_state(environment, array_holders).write(&path).map_err(PyErr::from)
}

fn process_state(
    environment: BTreeMap<String, String>,
    array_holders: Vec<Holder>,
) -> ProcessState {
    let pool = ProcessState::fullest_pool(&vramfit_vgpu::last_samples());
    ProcessState { environment, pool, array_holders: from_python(array_holders) }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
