//! `vramfit.data.HDF5Source`, the Rust half: rows by their numbers.

use std::path::PathBuf;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use vramfit_core::{Bytes, Result};
use vramfit_data::load::Lookup;

use crate::error::raise;
use crate::loader::{ColumnArgument, RowForm, column, forms, scalar};

/// Reads rows of datasets that belong together.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct RowReader {
    lookup: Lookup,
}

#[pymethods]
impl RowReader {
    #[new]
    #[pyo3(signature = (path, columns, *, cache, floats))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        columns: Vec<ColumnArgument>,
        cache: &str,
        floats: Option<&str>,
    ) -> PyResult<Self> {
        let open = || {
            let columns = columns.into_iter().map(column).collect::<Result<_>>()?;
            let floats = floats.map(scalar).transpose()?;
            Lookup::open(path, columns, floats, cache.parse::<Bytes>()?)
        };
        let lookup = py.detach(open).map_err(|error| raise(py, &error))?;
        Ok(RowReader { lookup })
    }

    /// The name, type and shape of a row of each column.
    #[getter]
    fn columns(&self) -> Vec<RowForm> {
        forms(self.lookup.columns())
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.lookup.row_count()
    }

    /// The bytes of rows, of each column one after the other in the order of `rows`.
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 makes it")]
    fn read<'py>(&self, py: Python<'py>, rows: Vec<u64>) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        let count = self.lookup.row_count();
        if let Some(row) = rows.iter().find(|row| **row >= count) {
            let text = format!("row {row} of {count}, counted from 0");
            return Err(PyIndexError::new_err(text));
        }
        let columns = self.lookup.columns().iter().enumerate();
        let read = columns.map(|(number, column)| {
            let length = rows.len().saturating_mul(column.rows().row_bytes());
            PyByteArray::new_with(py, length, |out| {
                let gather = || self.lookup.gather(number, &rows, out);
                py.detach(gather).map_err(|error| raise(py, &error))
            })
        });
        read.collect()
    }
}
