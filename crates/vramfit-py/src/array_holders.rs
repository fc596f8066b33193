//! The variables of a program that hold its arrays, as `_array_holders.py` finds them.

use pyo3::prelude::*;
use vramfit_model::trace::ArrayHolder;

/// The name of a variable, how many arrays it leads to, and their bytes.
pub(crate) type Holder = (String, u64, u64);

pub(crate) fn from_python(holders: Vec<Holder>) -> Vec<ArrayHolder> {
    let holders = holders.into_iter();
    holders.map(|(name, arrays, bytes)| ArrayHolder { name, arrays, bytes }).collect()
}

/// Records in the trace the variables that hold arrays.
#[pyfunction]
pub(crate) fn note_array_holders(py: Python<'_>, holders: Vec<Holder>) {
    let holders = from_python(holders);
    py.detach(|| vramfit_vgpu::note_array_holders(holders));
}
