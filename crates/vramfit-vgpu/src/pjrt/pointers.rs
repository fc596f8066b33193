//! What the C API passes as pointers: handles of this crate's objects, lists, and texts.

use std::ffi::c_char;
use std::slice;

use crate::pjrt::status::{PjrtResult, Status};

/// Makes the handle of an object. It lives until [`destroy`].
pub(crate) fn into_handle<T, H>(object: T) -> *mut H {
    Box::into_raw(Box::new(object)).cast()
}

/// Returns the object of a handle; for a null one, an error that says what is `missing`.
///
/// # Safety
/// The handle is null, or that of a `T` which is not destroyed.
pub(crate) unsafe fn object<'a, T, H>(handle: *mut H, missing: &str) -> PjrtResult<&'a T> {
    let object = handle.cast::<T>().as_ref();
    object.ok_or_else(|| Status::internal(missing))
}

/// Frees the object of a handle, if it is not null.
///
/// # Safety
/// As for [`object`]; the handle is not used any more.
pub(crate) unsafe fn destroy<T, H>(handle: *mut H) -> PjrtResult {
    if !handle.is_null() {
        drop(Box::from_raw(handle.cast::<T>()));
    }
    Ok(())
}

/// Returns a list, whose pointer may be null when it is empty.
///
/// # Safety
/// `pointer` leads to `count` values unless `count` is 0.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if count == 0 || pointer.is_null() {
        return &[];
    }
    slice::from_raw_parts(pointer, count)
}

/// Copies bytes; as [`list`].
pub(crate) unsafe fn bytes(pointer: *const c_char, count: usize) -> Vec<u8> {
    list(pointer.cast(), count).to_vec()
}

/// Copies a text; as [`list`].
pub(crate) unsafe fn text(pointer: *const c_char, size: usize) -> String {
    String::from_utf8_lossy(list(pointer.cast(), size)).into_owned()
}

/// Returns pointer and length of a list, for the caller.
pub(crate) fn list_parts<T>(list: &[T]) -> (*const T, usize) {
    (list.as_ptr(), list.len())
}

/// Returns pointer and size of a text, for the caller.
pub(crate) fn text_parts(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}
