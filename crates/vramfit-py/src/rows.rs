//! The native part of `vramfit.data.HDF5Source`: rows by their numbers.

use std::path::PathBuf;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList};
use vramfit_analysis::{Bytes, Result};
use vramfit_data::hdf5::ByteStorage;
use vramfit_data::load::{LoaderOptions, RandomAccessReader};
use vramfit_data::sample::SampleOptions;

use crate::error::raise;
use crate::loader::{ColumnArgument, ColumnInfo, column_infos, parse_column, parse_scalar};

/// Reads rows of datasets with the same number of rows.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct RowReader {
    reader: RandomAccessReader,
}

#[pymethods]
impl RowReader {
    #[new]
    #[pyo3(signature = (files, columns, samples, *, trim, cache, floats, unpack=false, allow_unclosed=false))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        files: Vec<PathBuf>,
        columns: Vec<ColumnArgument>,
        samples: &str,
        trim: bool,
        cache: &str,
        floats: Option<&str>,
        unpack: bool,
        allow_unclosed: bool,
    ) -> PyResult<Self> {
        let open = || {
            let options = LoaderOptions {
                files,
                columns: columns.into_iter().map(parse_column).collect::<Result<_>>()?,
                samples: SampleOptions::parse_json(samples)?,
                trim,
                // The offsets of ragged samples, and readers; the cache has a limit of its own.
                budget: Bytes(8 << 30),
                float_type: floats.map(parse_scalar).transpose()?,
                unpack,
                allow_unclosed,
                ..LoaderOptions::new("", [])
            };
            RandomAccessReader::open(&options, cache.parse::<Bytes>()?)
        };
        let reader = py.detach(open).map_err(|error| raise(py, &error))?;
        Ok(RowReader { reader })
    }

    /// The name, type and shape of a row of each column.
    #[getter]
    fn columns(&self) -> Vec<ColumnInfo> {
        column_infos(self.reader.columns())
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.reader.sample_count()
    }

    /// In how many groups of files there are datasets.
    #[getter]
    fn segments(&self) -> usize {
        self.reader.segment_count()
    }

    /// What a reader should know of files that were not closed.
    #[getter]
    fn unclosed_files(&self) -> Vec<String> {
        self.reader.unclosed_files().to_vec()
    }

    /// The bytes of `rows` of each column, in that order; of text and bytes of variable length a list with each.
    #[allow(clippy::needless_pass_by_value, reason = "the type that PyO3 extracts")]
    fn read<'py>(&self, py: Python<'py>, rows: Vec<u64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let count = self.reader.sample_count();
        if let Some(row) = rows.iter().find(|row| **row >= count) {
            let text = format!("row {row} is out of range for {count} rows");
            return Err(PyIndexError::new_err(text));
        }
        let columns = self.reader.columns().iter().enumerate();
        let read = columns.map(|(number, column)| {
            let length = rows.len().saturating_mul(column.sample_bytes());
            let gather = |out: &mut [u8]| {
                let gathered = py.detach(|| self.reader.gather(number, &rows, out));
                gathered.map_err(|error| raise(py, &error))
            };
            if column.bytes() != Some(ByteStorage::Variable) {
                return Ok(PyByteArray::new_with(py, length, gather)?.into_any());
            }
            let mut elements = vec![0; length];
            gather(&mut elements)?;
            let objects = py.detach(|| self.reader.read_objects(number, &rows, &elements));
            let objects = objects.map_err(|error| raise(py, &error))?;
            let objects = objects.iter().map(|object| PyBytes::new(py, object));
            Ok(PyList::new(py, objects)?.into_any())
        });
        read.collect()
    }
}
