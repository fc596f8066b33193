//! The structs of the PJRT C API, written by hand after its header at version 0.112;
//! the table has as many functions at 0.116 (JAX 0.12.0).
//!
//! The API only ever appends: a struct begins with its own size, and a newer one has more fields
//! at the end. So one definition serves every release of JAX, as long as nothing beyond the
//! given size is touched; `args::with_args` sees to that for every call.

#[macro_use]
mod macros;
pub(crate) mod buffer;
pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod executable;
pub(crate) mod extension;
pub(crate) mod transfer;

use std::ffi::{c_char, c_int, c_void};

/// Declares types that are only used behind a pointer.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(crate) struct $name([u8; 0]);
        )*
    };
}

opaque! {
    AsyncHostToDeviceTransferManager Buffer Client Device DeviceDescription Error Event Executable
    ExecuteContext LoadedExecutable Memory SerializedLayout MemoryLayout TopologyDescription
}

/// Called once an event is ready, with its error (null for success) and the caller's argument.
pub(crate) type EventOnReadyCallback = unsafe extern "C" fn(*mut Error, *mut c_void);

/// Any function of the API table: one pointer in, one out (null for success).
pub(crate) type Function = unsafe extern "C" fn(*mut c_void) -> *mut Error;

/// The header of the API table; the functions follow it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ApiHeader {
    pub(crate) struct_size: usize,
    pub(crate) extension_start: *mut extension::ExtensionBase,
    pub(crate) version_struct_size: usize,
    pub(crate) version_extension_start: *mut c_void,
    pub(crate) major: c_int,
    pub(crate) minor: c_int,
}

/// What an error's first word points to since API 0.109 (before, errors were opaque).
#[repr(C)]
pub(crate) struct ErrorFunctions {
    pub(crate) struct_size: usize,
    pub(crate) instance_size: usize,
    pub(crate) extension_start: *mut c_void,
    pub(crate) destroy: unsafe extern "C" fn(*mut Error),
    pub(crate) message: unsafe extern "C" fn(*const Error, *mut *const c_char, *mut usize),
    pub(crate) get_code: unsafe extern "C" fn(*const Error) -> c_int,
    pub(crate) for_each_payload: unsafe extern "C" fn(*const Error, *mut c_void, *mut c_void),
}

/// What a memory's first word points to, likewise.
#[repr(C)]
pub(crate) struct MemoryFunctions {
    pub(crate) struct_size: usize,
    pub(crate) extension_start: *mut c_void,
    pub(crate) instance_size: usize,
    pub(crate) get_user_data: unsafe extern "C" fn(*mut Memory, *const c_void) -> *mut c_void,
    pub(crate) set_user_data: unsafe extern "C" fn(
        *mut Memory,
        *const c_void,
        *mut c_void,
        Option<unsafe extern "C" fn(*mut c_void)>,
    ),
}
