//! Every recorded file, damaged in every way: it gives values or an error, soon, and without taking
//! more memory than the file's own size explains.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use vramfit_base::{ErrorKind, Result};
use vramfit_data::hdf5::{Container, tree};
use vramfit_data::read::{Dataset, MAX_CHUNK_BYTES, RowOptions, RowReader};
use vramfit_data::source::Source;

use crate::recorded::{Case, cases};

thread_local! {
    /// The largest piece of memory that this thread asked for at once; readers have no other threads,
    /// other tests have.
    static LARGEST_ALLOCATION: Cell<usize> = const { Cell::new(0) };
}

/// Enough for the structure of a file of 20 KiB: a table of chunks is a few times as large as its index.
const MAX_BYTES: usize = 1 << 20;
/// A chunk may decode to as much as this, and filters need a little room beside it.
const MAX_DECODED: usize = MAX_CHUNK_BYTES as usize / 16 * 18;

struct Watched;

impl Watched {
    fn note(layout: Layout) {
        LARGEST_ALLOCATION.set(LARGEST_ALLOCATION.get().max(layout.size()));
    }
}

#[allow(unsafe_code, reason = "an allocator cannot be written otherwise")]
// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::note(layout);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::note(layout);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// Lists a file and reads as much of the dataset as an undamaged one could have.
fn read(case: &Case, bytes: Vec<u8>) -> Result<()> {
    let container = Container::open(Arc::new(Source::from_bytes(&case.name, bytes)))?;
    let listed = tree(&container);
    let dataset = Dataset::open_in(&container, &case.dataset)?;
    listed?;
    let largest = LARGEST_ALLOCATION.get();
    let name = &case.name;
    assert!(largest <= MAX_BYTES, "{name}: {largest} bytes for its structure");
    for is_last_axis in [false, true] {
        let field = case.field.clone();
        let options = RowOptions { field, is_last_axis, ..RowOptions::default() };
        let rows = RowReader::new(dataset.clone(), &options)?;
        // A damaged shape may say anything; what is read of it is up to the caller.
        let count = rows.len().min((MAX_BYTES / 2 / rows.row_bytes().max(1)) as u64);
        let mut out = vec![0; count as usize * rows.row_bytes()];
        rows.read(0..count, &mut out)?;
        let last = rows.len().saturating_sub(1);
        if rows.row_bytes() <= MAX_BYTES / 2 && !rows.is_empty() {
            rows.gather(&[last, 0], &mut vec![0; 2 * rows.row_bytes()])?;
        }
    }
    Ok(())
}

fn check(case: &Case, what: &str, bytes: Vec<u8>) {
    let name = &case.name;
    LARGEST_ALLOCATION.set(0);
    if let Err(error) = read(case, bytes) {
        let known = [
            ErrorKind::InvalidFile,
            ErrorKind::FileNotClosed,
            ErrorKind::UnsupportedFeature,
            ErrorKind::InvalidArgument,
            ErrorKind::Io,
        ];
        assert!(known.contains(&error.kind()), "{name} {what}: {error}");
    }
    let largest = LARGEST_ALLOCATION.get();
    assert!(largest <= MAX_DECODED, "{name} {what}: {largest} bytes at once");
}

#[test]
fn damaged_files_give_values_or_errors() {
    for case in cases() {
        let whole = std::fs::read(case.path("h5")).unwrap();
        let stride = (whole.len() / 400).max(1) | 1;
        for at in (0..whole.len()).step_by(stride) {
            for flip in [0xff, 0x01, 0x80] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let what = format!("with byte {at} changed by {flip:#x}");
                check(&case, &what, bytes);
            }
        }
        for end in (0..whole.len()).step_by(stride) {
            let cut = || whole[..end].to_vec();
            check(&case, &format!("cut at {end}"), cut());
            assert!(read(&case, cut()).is_err(), "{} cut at {end}", case.name);
        }
    }
}
