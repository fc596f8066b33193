//! The native part of `vramfit export --format safetensors`.

use std::collections::HashMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use vramfit_analysis::{Error, Result};

use crate::error::raise;

/// Writes arrays by name: the name of their type, their shape and their bytes.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "the types that PyO3 extracts")]
pub(crate) fn write_safetensors(
    py: Python<'_>,
    path: PathBuf,
    arrays: Vec<(String, String, Vec<usize>, Bound<'_, PyBytes>)>,
    metadata: HashMap<String, String>,
) -> PyResult<()> {
    let views = arrays.iter().map(|(name, kind, shape, bytes)| {
        let view = TensorView::new(parse_dtype(name, kind)?, shape.clone(), bytes.as_bytes());
        let view = view.map_err(|error| {
            Error::invalid_argument(format!("cannot write `{name}`")).cause(error)
        })?;
        Ok((name.clone(), view))
    });
    let views = views.collect::<Result<Vec<_>>>().map_err(|error| raise(py, &error))?;
    py.detach(|| serialize_to_file(views, Some(metadata), &path)).map_err(|error| {
        raise(py, &Error::io(format!("cannot write `{}`", path.display())).cause(error))
    })
}

/// Returns the type that NumPy or ml_dtypes gives this name.
fn parse_dtype(name: &str, kind: &str) -> Result<Dtype> {
    Ok(match kind {
        "bool" => Dtype::BOOL,
        "uint8" => Dtype::U8,
        "int8" => Dtype::I8,
        "uint16" => Dtype::U16,
        "int16" => Dtype::I16,
        "uint32" => Dtype::U32,
        "int32" => Dtype::I32,
        "uint64" => Dtype::U64,
        "int64" => Dtype::I64,
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "float8_e5m2" => Dtype::F8_E5M2,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        _ => {
            return Err(Error::invalid_argument(format!(
                "`{name}` has the type `{kind}`, which safetensors has not"
            )));
        }
    })
}
