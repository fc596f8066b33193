//! Memory of windows: one mapping with huge pages, divided into slabs that each belong to one thread at a time.
//!
//! Rows are taken from all over a window. With pages of 4 KiB the processor has to look up most of them in tables
//! that it does not remember, which takes longer than copying a small row; on a virtual machine more so.

use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Advice, MmapMut};
use vramfit_base::{Bytes, Error, Result};

use super::copy::CACHE_LINE;

/// Bytes of a huge page on all processors supported.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Exclusive memory, initially zero.
#[derive(Debug)]
pub(super) struct Slab {
    start: NonNull<u8>,
    length: usize,
    _mapping: Arc<MmapMut>,
}

#[allow(unsafe_code, reason = "a pointer says nothing of who uses it")]
// SAFETY: no two slabs have a byte in common and nothing else looks into the memory, so a slab is like a
// `Vec<u8>`: it can be sent, and looked into by several where nobody writes.
unsafe impl Send for Slab {}
#[allow(unsafe_code, reason = "a pointer says nothing of who uses it")]
// SAFETY: as above; writing takes `&mut`.
unsafe impl Sync for Slab {}

impl Slab {
    /// Allocates slabs of `length` bytes each. The system provides the memory when it is first written to.
    ///
    /// # Errors
    /// `io` when the system has not enough memory.
    pub(super) fn allocate_many(count: usize, length: usize) -> Result<Vec<Slab>> {
        let each = length.next_multiple_of(CACHE_LINE).max(CACHE_LINE);
        let all = each.saturating_mul(count);
        let failed = |error| {
            let what = format!("cannot allocate {} for shuffle windows", Bytes(all as u64));
            Error::io(what).cause(error)
        };
        // One more page, so that huge pages can start with the first slab.
        let mut map = MmapMut::map_anon(all.saturating_add(HUGE_PAGE_BYTES)).map_err(failed)?;
        let begin = map.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        let large = all / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if large > 0 {
            // Without huge pages, small ones do.
            let _ = map.advise_range(Advice::HugePage, begin, large);
        }
        let first = map.as_mut_ptr();
        let mapping = Arc::new(map);
        let slabs = (0..count).map(|number| {
            #[allow(unsafe_code, reason = "memory is cut into slabs by their addresses")]
            // SAFETY: `begin` is at most `HUGE_PAGE_BYTES`, so all slabs lie in the mapping; they lie one behind the
            // other; and nobody reaches the mapping itself from here on but to drop it.
            let start = unsafe { NonNull::new_unchecked(first.add(begin + number * each)) };
            Slab { start, length, _mapping: Arc::clone(&mapping) }
        });
        Ok(slabs.collect())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        #[allow(unsafe_code, reason = "the address came from the system")]
        // SAFETY: the bytes belong to this slab alone, and are there as long as it is.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.length)
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        #[allow(unsafe_code, reason = "the address came from the system")]
        // SAFETY: as above, and the holder of `&mut` is the only one.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_base::ErrorKind;

    #[test]
    fn slabs_are_apart_aligned_and_outlive_each_other() {
        for (count, length) in [(1, 0), (1, 1), (3, 100), (7, 1 << 20), (2, (5 << 20) + 1)] {
            let mut slabs = Slab::allocate_many(count, length).unwrap();
            assert_eq!(slabs.len(), count);
            for (number, slab) in slabs.iter_mut().enumerate() {
                assert_eq!(slab.bytes().len(), length);
                assert_eq!(slab.bytes().as_ptr() as usize % CACHE_LINE, 0);
                assert!(slab.bytes().iter().all(|byte| *byte == 0));
                slab.bytes_mut().fill(number as u8 + 1);
            }
            while let Some(slab) = slabs.pop() {
                let is = slabs.len() as u8 + 1;
                let thread =
                    std::thread::spawn(move || slab.bytes().iter().all(|byte| *byte == is));
                assert!(thread.join().unwrap());
            }
        }
    }

    #[test]
    fn more_than_there_is_address_space_for_is_an_error() {
        let error = Slab::allocate_many(1 << 20, 1 << 44).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("for shuffle windows"), "{error}");
    }
}
