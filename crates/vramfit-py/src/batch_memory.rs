//! The memory of batches, which Python borrows by the buffer protocol.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use vramfit_data::load::BatchBuffer;

/// The memory of one column of a batch, for the buffer protocol. It returns to the loader
/// when nothing in Python and nothing in JAX refers to it any more.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct BatchMemory {
    length: usize,
    /// The address of the buffer, which stays the same as long as it lives.
    address: AtomicPtr<u8>,
    _buffer: BatchBuffer,
}

impl BatchMemory {
    pub(crate) fn new(mut buffer: BatchBuffer) -> Self {
        let bytes = buffer.bytes_mut();
        BatchMemory {
            length: bytes.len(),
            address: AtomicPtr::new(bytes.as_mut_ptr()),
            _buffer: buffer,
        }
    }
}

#[pymethods]
impl BatchMemory {
    fn __len__(&self) -> usize {
        self.length
    }

    #[allow(unsafe_code, reason = "the buffer protocol is a C interface")]
    #[allow(clippy::needless_pass_by_value, reason = "the signature that PyO3 expects")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let (address, length) = (this.address.load(Ordering::Relaxed), this.length as isize);
        // SAFETY: the memory belongs to the buffer in this object, which the view keeps alive and which
        // Rust does not access any more. `view` is the caller's, as the protocol requires.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast(), length, 0, flags) };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
