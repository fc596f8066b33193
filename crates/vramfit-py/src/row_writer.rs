//! The native part of `vramfit predict`: rows that Python computes, written to HDF5.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vramfit_analysis::{Bytes, Error};
use vramfit_data::write::{
    Attribute, Content, Dataset, Number, RowWriter as Writer, Storage, Value, WriteOptions,
};

use crate::error::raise;

/// A prediction costs more than its bytes, so less of it may be lost than of generated data.
const SYNC_EVERY: Bytes = Bytes(4 << 20);

/// Writes datasets of equally many rows, piece by piece; an attempt that was killed is resumed.
#[pyclass(module = "vramfit._native")]
pub(crate) struct RowWriter {
    /// None once the file is complete.
    writer: Option<Writer>,
}

#[pymethods]
impl RowWriter {
    /// `datasets` are names, types and shapes; `purpose` identifies what is written.
    #[new]
    #[pyo3(signature = (path, datasets, attributes, *, piece_rows, purpose, force, resume))]
    #[allow(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "arguments from Python come by value, and by keyword"
    )]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        datasets: Vec<(String, String, Vec<u64>)>,
        attributes: Vec<(String, String)>,
        piece_rows: u64,
        purpose: &str,
        force: bool,
        resume: bool,
    ) -> PyResult<Self> {
        let open = || {
            let datasets = datasets.into_iter().map(|(name, kind, shape)| {
                let number = Number::from_name(&kind).ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "`{name}` has numbers of type `{kind}`, which cannot be written"
                    ))
                })?;
                Ok(Dataset::new(&name, number, shape, Storage::Contiguous))
            });
            let text = |(name, text)| -> Attribute { (name, Value::Text(text)) };
            let content = Content {
                datasets: datasets.collect::<vramfit_analysis::Result<_>>()?,
                attributes: attributes.into_iter().map(text).collect(),
            };
            let options = WriteOptions { force, resume, sync_every: SYNC_EVERY };
            Writer::open(&path, content, piece_rows, purpose, options)
        };
        let writer = py.detach(open).map_err(|error| raise(py, &error))?;
        Ok(RowWriter { writer: Some(writer) })
    }

    /// Rows that are written, those of an earlier attempt included.
    #[getter]
    fn rows_done(&self) -> PyResult<u64> {
        Ok(self.writer.as_ref().ok_or_else(finished)?.rows_done())
    }

    /// Adds the next piece: the bytes of its rows, for each dataset.
    #[allow(clippy::needless_pass_by_value, reason = "the type that PyO3 extracts")]
    fn add(&mut self, py: Python<'_>, parts: Vec<Bound<'_, PyBytes>>) -> PyResult<()> {
        let writer = self.writer.as_mut().ok_or_else(finished)?;
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        py.detach(|| writer.add(&parts)).map_err(|error| raise(py, &error))
    }

    /// Completes the file, and returns its size in bytes.
    fn finish(&mut self, py: Python<'_>) -> PyResult<u64> {
        let writer = self.writer.take().ok_or_else(finished)?;
        let bytes = py.detach(|| writer.finish()).map_err(|error| raise(py, &error))?;
        Ok(bytes.0)
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("the file is complete")
}
