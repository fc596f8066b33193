//! The chain of extensions behind the table: copied, never edited in place.
//!
//! Extensions that take compile-time objects are not changed; two are replaced because they take
//! objects of this crate; all others (streams, raw buffers, transfers between hosts, collectives …) take
//! run-time objects of the real client and are left out. JAX runs without them.

use std::ptr;

use crate::pjrt::abi::extension::{ExtensionBase, kind};
use crate::pjrt::layouts;
use crate::pjrt::shardings;

const COPIED_KINDS: &[i32] = &[
    kind::GPU_CUSTOM_CALL,
    kind::PROFILER,
    kind::CUSTOM_PARTITIONER,
    kind::LAYOUTS,
    kind::FFI,
    kind::MEMORY_DESCRIPTIONS,
    kind::TRITON,
    kind::SHARDINGS,
    kind::XLA_TRANSFORM,
];

/// Copies a chain, keeping and replacing as described above. The copies live as long as the
/// process.
///
/// # Safety
/// `chain` is a chain of extension structs, each as long as it says.
pub(crate) unsafe fn copy_chain(chain: *mut ExtensionBase) -> *mut ExtensionBase {
    let mut head = ptr::null_mut();
    let mut last: *mut ExtensionBase = ptr::null_mut();
    let mut next = chain;
    while !next.is_null() {
        let original = next;
        next = (*original).next;
        if !COPIED_KINDS.contains(&(*original).r#type) {
            continue;
        }
        let size = (*original).struct_size;
        // Words, so that the copy is aligned for pointers.
        let words = vec![0_usize; size.div_ceil(size_of::<usize>())];
        let copy: *mut ExtensionBase = Box::leak(words.into_boxed_slice()).as_mut_ptr().cast();
        ptr::copy_nonoverlapping(original.cast::<u8>(), copy.cast::<u8>(), size);
        (*copy).next = ptr::null_mut();
        match (*copy).r#type {
            kind::LAYOUTS => layouts::replace(copy.cast(), size),
            kind::SHARDINGS => shardings::replace(copy.cast(), size),
            _ => {}
        }
        if last.is_null() {
            head = copy;
        } else {
            (*last).next = copy;
        }
        last = copy;
    }
    head
}
