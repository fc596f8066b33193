//! Contents of arrays that the host keeps: bytes, and results that lie with Python until they are read.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::hooks::HostArray;

/// Results up to this size do not count against the cap on uploads.
const MAX_UNCOUNTED_BYTES: u64 = 1 << 20;

/// Bytes of uploads that are kept now, all arrays together.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Counts bytes as kept while it lives.
#[derive(Debug)]
struct Kept(u64);

impl Kept {
    fn new(bytes: u64) -> Self {
        KEPT.fetch_add(bytes, Ordering::Relaxed);
        Kept(bytes)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The bytes of a value.
#[derive(Debug)]
pub(crate) struct Data {
    bytes: Box<[u8]>,
    /// Those that count against the cap on uploads.
    _kept: Option<Kept>,
}

impl Data {
    /// Makes the value of an upload.
    pub(crate) fn uploaded(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Data {
            _kept: Some(Kept::new(bytes.len() as u64)),
            bytes: bytes.into_boxed_slice(),
        })
    }

    /// Makes a value that does not count as one.
    pub(crate) fn uncounted(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Data {
            _kept: None,
            bytes: bytes.into_boxed_slice(),
        })
    }

    /// Returns the bytes of uploads and large results that are kept now.
    pub(crate) fn kept() -> u64 {
        KEPT.load(Ordering::Relaxed)
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A result of a program that was run. Most are only handed on to the next call of a loop.
#[derive(Debug)]
pub(crate) struct Computed {
    pub(crate) array: Box<dyn HostArray>,
    /// How many bytes it has if it is what the program declares.
    size: u64,
    bytes: OnceLock<Option<Arc<Data>>>,
    /// Counted as an upload is if it is large.
    _kept: Option<Kept>,
}

impl Computed {
    /// Makes the value of a result that is to have so many bytes.
    pub(crate) fn new(array: Box<dyn HostArray>, size: u64) -> Arc<Self> {
        Arc::new(Computed {
            array,
            size,
            bytes: OnceLock::new(),
            _kept: (size > MAX_UNCOUNTED_BYTES).then(|| Kept::new(size)),
        })
    }

    /// Returns the bytes. No lock is held while Python reads them; two threads may both do so.
    pub(crate) fn bytes(&self) -> Option<Arc<Data>> {
        if self.bytes.get().is_none() {
            let bytes = self.array.read();
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == self.size);
            let _ = self.bytes.set(bytes.map(Data::uncounted));
        }
        self.bytes.get().cloned().flatten()
    }
}
