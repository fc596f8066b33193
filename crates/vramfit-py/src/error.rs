//! Core errors as Python exceptions. The classes are declared in `python/vramfit/errors.py`, so
//! that they have docstrings, types and can be pickled.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Returns the exception that stands for an error of the crates.
pub(crate) fn raise(py: Python<'_>, error: &vramfit_analysis::Error) -> PyErr {
    exception(py, error).unwrap_or_else(|failure| failure)
}

fn exception(py: Python<'_>, error: &vramfit_analysis::Error) -> PyResult<PyErr> {
    let classes = py.import("vramfit.errors")?.getattr("BY_ID")?;
    let class = classes.get_item(error.kind().id())?;
    let rest = PyDict::new(py);
    rest.set_item("cause", error.cause_text())?;
    rest.set_item("hint", error.hint_in_python())?;
    Ok(PyErr::from_value(class.call((error.message(),), Some(&rest))?))
}
