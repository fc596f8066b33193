//! Contents of arrays in host memory: bytes, and results that Python holds until they are read.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::hooks::HostArray;

/// Results up to this size do not count against the cap on uploads.
const MAX_UNTRACKED_BYTES: u64 = 1 << 20;

/// Bytes that are retained now and count against the cap, of all arrays together.
static RETAINED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts bytes as retained while it lives.
#[derive(Debug)]
struct RetainedBytes(u64);

impl RetainedBytes {
    fn new(bytes: u64) -> Self {
        RETAINED_BYTES.fetch_add(bytes, Ordering::Relaxed);
        RetainedBytes(bytes)
    }
}

impl Drop for RetainedBytes {
    fn drop(&mut self) {
        RETAINED_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The bytes of a value.
#[derive(Debug)]
pub(crate) struct HostData {
    bytes: Box<[u8]>,
    /// Its bytes, if they count against the cap on uploads.
    _retained: Option<RetainedBytes>,
}

impl HostData {
    /// Makes the value of an upload.
    pub(crate) fn from_upload(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(HostData {
            _retained: Some(RetainedBytes::new(bytes.len() as u64)),
            bytes: bytes.into_boxed_slice(),
        })
    }

    /// Makes a value that does not count against the cap.
    pub(crate) fn untracked(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(HostData { _retained: None, bytes: bytes.into_boxed_slice() })
    }

    /// Returns the bytes of uploads and large results that are retained now.
    pub(crate) fn retained_bytes() -> u64 {
        RETAINED_BYTES.load(Ordering::Relaxed)
    }
}

impl Deref for HostData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A result of a program that was evaluated. Most are only passed to the next call of a loop.
#[derive(Debug)]
pub(crate) struct ComputedArray {
    pub(crate) array: Box<dyn HostArray>,
    /// How many bytes it must have according to the program.
    size: u64,
    bytes: OnceLock<Option<Arc<HostData>>>,
    /// Its bytes, if it is large enough to count against the cap.
    _retained: Option<RetainedBytes>,
}

impl ComputedArray {
    /// Makes the value of a result that must have this many bytes.
    pub(crate) fn new(array: Box<dyn HostArray>, size: u64) -> Arc<Self> {
        Arc::new(ComputedArray {
            array,
            size,
            bytes: OnceLock::new(),
            _retained: (size > MAX_UNTRACKED_BYTES).then(|| RetainedBytes::new(size)),
        })
    }

    /// Returns the bytes. No lock is held while Python reads them; two threads may both do so.
    pub(crate) fn bytes(&self) -> Option<Arc<HostData>> {
        if self.bytes.get().is_none() {
            let bytes = self.array.read();
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == self.size);
            let _ = self.bytes.set(bytes.map(HostData::untracked));
        }
        self.bytes.get().cloned().flatten()
    }
}
