//! Rows of HDF5 files, for the tests that compare them with h5py's.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use vramfit_data::read::{Dataset, RowOptions, RowReader};

use crate::error::raise;
use crate::loader::parse_scalar;

/// Reads rows `start` to `stop` of a dataset, or those that `rows` lists: their shape, the name of
/// their type, and their bytes.
#[pyfunction]
#[pyo3(signature = (path, dataset, start=0, stop=None, *, rows=None, field=None, dtype=None, threads=1))]
#[allow(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "arguments from Python come by value, and by keyword"
)]
pub(crate) fn read_hdf5_rows<'py>(
    py: Python<'py>,
    path: PathBuf,
    dataset: &str,
    start: u64,
    stop: Option<u64>,
    rows: Option<Vec<u64>>,
    field: Option<String>,
    dtype: Option<&str>,
    threads: usize,
) -> PyResult<(Bound<'py, PyTuple>, &'static str, Bound<'py, PyBytes>)> {
    let open = || {
        let options = RowOptions {
            field,
            to: dtype.map(parse_scalar).transpose()?,
            threads,
            ..RowOptions::default()
        };
        RowReader::new(Dataset::open(&path, dataset)?, &options)
    };
    let reader = py.detach(open).map_err(|error| raise(py, &error))?;
    let stop = stop.unwrap_or(reader.len()).max(start);
    let count = rows.as_ref().map_or(stop - start, |rows| rows.len() as u64);
    let length = (count as usize).saturating_mul(reader.row_bytes());
    let bytes = PyBytes::new_with(py, length, |out| {
        let read = || match &rows {
            Some(rows) => reader.gather(rows, out),
            None => reader.read(start..stop, out),
        };
        py.detach(read).map_err(|error| raise(py, &error))
    })?;
    let mut shape = vec![count];
    shape.extend(reader.row_shape());
    Ok((PyTuple::new(py, shape)?, reader.scalar().name(), bytes))
}
