//! Why a program ran out of memory, for the line that `vramfit run` prints.

use pyo3::prelude::*;
use vramfit_core::explain::{ExplainOptions, LogScanner, explain};
use vramfit_gpu::describe_other_use;

/// Returns the diagnosis of a log in one line, with who else holds memory of the GPU now; `None` where memory is not the
/// cause.
#[pyfunction]
pub(crate) fn explain_failure(log: &[u8]) -> Option<String> {
    let mut scanner = LogScanner::new("");
    scanner.push(log);
    let diagnosis = explain(&scanner.finish(), &ExplainOptions::default()).diagnosis()?;
    let others = describe_other_use(Some(std::process::id()), |name| std::env::var(name).ok());
    Some(std::iter::once(diagnosis).chain(others).collect::<Vec<_>>().join("; "))
}
