//! Argument structs of the C API, of which the caller may know only the first fields.

use std::ffi::c_void;
use std::{mem, ptr};

use crate::pjrt::status::PjrtResult;

/// Runs `handler` on a whole copy of an argument struct of which the caller may know only the
/// first fields, and copies back as much as the caller knows.
///
/// This is what makes one definition serve every release: fields beyond the caller's size read as
/// zero, and nothing is written there.
///
/// # Safety
/// `args` points to an argument struct that begins with its size, of the type `T` or an earlier
/// or later version of it.
pub(crate) unsafe fn with_args<T: Copy>(
    args: *mut c_void,
    handler: impl FnOnce(&mut T) -> PjrtResult,
) -> PjrtResult {
    // SAFETY: every argument struct is plain data for which zero is valid; `known` bytes are
    // within both structs.
    unsafe {
        let known = args.cast::<usize>().read().min(size_of::<T>());
        let mut copy = mem::zeroed::<T>();
        ptr::copy_nonoverlapping(args.cast::<u8>(), (&raw mut copy).cast::<u8>(), known);
        let result = handler(&mut copy);
        ptr::copy_nonoverlapping((&raw const copy).cast::<u8>(), args.cast::<u8>(), known);
        result
    }
}

/// Reads a struct nested in an argument struct in the same guarded way.
///
/// # Safety
/// `pointer` is null or points to such a struct.
pub(crate) unsafe fn read_sized<T: Copy>(pointer: *const T) -> Option<T> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: as in `with_args`.
    unsafe {
        let known = pointer.cast::<usize>().read().min(size_of::<T>());
        let mut copy = mem::zeroed::<T>();
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut copy).cast::<u8>(), known);
        Some(copy)
    }
}

/// Makes a C function of a handler, for the tables of extensions.
macro_rules! entry_point {
    ($handler:path) => {{
        unsafe extern "C" fn entry(args: *mut std::ffi::c_void) -> *mut crate::pjrt::abi::Error {
            // SAFETY: JAX passes the argument struct that belongs to this entry.
            let result = unsafe { crate::pjrt::args::with_args(args, |args| $handler(args)) };
            result.err().map_or(std::ptr::null_mut(), crate::pjrt::error::into_raw)
        }
        entry as crate::pjrt::abi::Function
    }};
}
pub(crate) use entry_point;

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Short {
        size: usize,
        first: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Long {
        size: usize,
        first: u64,
        second: u64,
    }

    #[test]
    fn fields_beyond_the_callers_size_read_zero_and_are_not_written() {
        let mut memory =
            [Short { size: size_of::<Short>(), first: 1 }, Short { size: 77, first: 88 }];
        // SAFETY: the struct begins with its size.
        let result = unsafe {
            with_args((&raw mut memory[0]).cast(), |long: &mut Long| {
                assert_eq!((long.first, long.second), (1, 0));
                long.first = 2;
                long.second = 3;
                Ok(())
            })
        };
        assert_eq!(result, Ok(()));
        assert_eq!((memory[0].first, memory[1].size, memory[1].first), (2, 77, 88));
    }
}
