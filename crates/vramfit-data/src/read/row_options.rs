//! How rows are to be read, and the memory for that.

use std::sync::{Arc, Mutex, PoisonError};

use vramfit_base::Result;

use crate::filter::Scratch;
use crate::hdf5::Scalar;

/// How rows are to be read.
#[derive(Clone, Debug, Default)]
pub struct RowOptions {
    /// Which field of a record; needed where elements are records.
    pub field: Option<String>,
    /// Whether rows are on the last axis, as in files of MATLAB, and not on the first one.
    pub is_last_axis: bool,
    /// What the numbers become; what they are in the file if not set.
    pub to: Option<Scalar>,
    /// How many threads decode; the one that calls counts. Zero means one.
    pub threads: usize,
    /// The memory to decode in, which several readers may share.
    pub scratch: ScratchPool,
}

/// Memory to decode in, which no call uses at the moment. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct ScratchPool(Arc<Mutex<Vec<Scratch>>>);

impl ScratchPool {
    pub(super) fn with(&self, work: impl FnOnce(&mut Scratch) -> Result<()>) -> Result<()> {
        let spare = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = spare().pop();
        let mut scratch = taken.unwrap_or_default();
        let result = work(&mut scratch);
        spare().push(scratch);
        result
    }
}
