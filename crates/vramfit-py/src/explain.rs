//! Why a program ran out of memory, for the line that `vramfit run` prints.

use pyo3::prelude::*;
use vramfit_core::explain::{ExplainOptions, LogScanner, explain};

/// Returns the diagnosis of a log in one line; `None` where memory is not the cause.
#[pyfunction]
pub(crate) fn explain_failure(log: &[u8]) -> Option<String> {
    let mut scanner = LogScanner::new("");
    scanner.push(log);
    explain(&scanner.finish(), &ExplainOptions::default()).diagnosis()
}
