//! Strings in C.

use std::ffi::c_char;

/// Copies `c_string` and a zero byte into a buffer of `length` bytes. Returns whether it had room.
pub(crate) unsafe fn copy_to_buffer(text: &str, buffer: *mut c_char, length: u32) -> bool {
    if text.len() >= length as usize {
        return false;
    }
    std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
    *buffer.add(text.len()) = 0;
    true
}
