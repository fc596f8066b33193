//! Error objects: those of this crate, those of the CUDA plugin, and how to distinguish them.
//!
//! JAX destroys every error through the one table that it knows. An error of this crate must never
//! reach the CUDA plugin's functions, nor the reverse. The first word of this crate's errors points to
//! [`FUNCTIONS`], which no error of the CUDA plugin does.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::pjrt::abi::error::{
    ErrorDestroyArgs, ErrorForEachPayloadArgs, ErrorGetCodeArgs, ErrorMessageArgs,
};
use crate::pjrt::abi::{Error, ErrorFunctions};
use crate::pjrt::cuda_plugin;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status};

#[repr(C)]
struct ErrorObject {
    functions: *const ErrorFunctions,
    status: Status,
}

static FUNCTIONS: ErrorFunctions = ErrorFunctions {
    struct_size: size_of::<ErrorFunctions>(),
    instance_size: size_of::<ErrorObject>(),
    extension_start: ptr::null_mut(),
    destroy: own_destroy,
    message: own_message,
    get_code: own_code,
    for_each_payload: own_payloads,
};

// SAFETY: the table holds function pointers and a null pointer; it is never written.
unsafe impl Sync for ErrorFunctions {}

/// Makes an error object, to be freed by `PJRT_Error_Destroy`.
pub(crate) fn into_raw(status: Status) -> *mut Error {
    pointers::into_handle(ErrorObject { functions: &raw const FUNCTIONS, status })
}

/// Converts an error of either kind and frees it.
///
/// # Safety
/// `error` is null or a live error of this crate or of the CUDA plugin.
pub(crate) unsafe fn into_result(error: *mut Error) -> PjrtResult {
    if error.is_null() {
        return Ok(());
    }
    if !is_own(error) {
        return Err(cuda_plugin::get()?.take_error(error));
    }
    let object = Box::from_raw(error.cast::<ErrorObject>());
    Err(object.status)
}

unsafe fn is_own(error: *const Error) -> bool {
    *error.cast::<*const ErrorFunctions>() == &raw const FUNCTIONS
}

unsafe fn status<'a>(error: *const Error) -> &'a Status {
    &(*error.cast::<ErrorObject>()).status
}

unsafe extern "C" fn own_destroy(error: *mut Error) {
    drop(Box::from_raw(error.cast::<ErrorObject>()));
}

unsafe extern "C" fn own_message(error: *const Error, text: *mut *const c_char, size: *mut usize) {
    (*text, *size) = pointers::text_parts(status(error).message());
}

unsafe extern "C" fn own_code(error: *const Error) -> c_int {
    status(error).code()
}

unsafe extern "C" fn own_payloads(_: *const Error, _: *mut c_void, _: *mut c_void) {}

pub(crate) unsafe fn destroy(args: &mut ErrorDestroyArgs) -> PjrtResult {
    if !args.error.is_null() {
        // The status is not needed, only that the object is freed by its owner.
        let _ = into_result(args.error);
    }
    Ok(())
}

pub(crate) unsafe fn message(args: &mut ErrorMessageArgs) -> PjrtResult {
    if is_own(args.error) {
        own_message(args.error, &raw mut args.message, &raw mut args.message_size);
        Ok(())
    } else {
        cuda_plugin::get()?.call("PJRT_Error_Message", args)
    }
}

pub(crate) unsafe fn get_code(args: &mut ErrorGetCodeArgs) -> PjrtResult {
    if is_own(args.error) {
        args.code = own_code(args.error);
        Ok(())
    } else {
        cuda_plugin::get()?.call("PJRT_Error_GetCode", args)
    }
}

pub(crate) unsafe fn for_each_payload(args: &mut ErrorForEachPayloadArgs) -> PjrtResult {
    if is_own(args.error) {
        Ok(())
    } else {
        cuda_plugin::get()?.call("PJRT_Error_ForEachPayload", args)
    }
}
