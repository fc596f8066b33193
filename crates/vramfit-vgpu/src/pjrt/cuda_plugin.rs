//! The real CUDA plugin: loaded from the wheel that the user has installed, used to compile, never to
//! access a GPU.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{ptr, slice};

use crate::pjrt::abi::error::{ErrorDestroyArgs, ErrorGetCodeArgs, ErrorMessageArgs};
use crate::pjrt::abi::{ApiHeader, Error, Function};
use crate::pjrt::names::NAMES;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status, StatusCode};

/// A loaded plugin with its table of functions.
pub(crate) struct CudaPlugin {
    header: *const ApiHeader,
    functions: HashMap<&'static str, Function>,
}

// SAFETY: the table is constant after loading, and its functions may be called from any thread.
unsafe impl Send for CudaPlugin {}
// SAFETY: as above.
unsafe impl Sync for CudaPlugin {}

static LIBRARY_PATH: OnceLock<PathBuf> = OnceLock::new();
static PLUGIN: OnceLock<Result<CudaPlugin, Status>> = OnceLock::new();

/// Sets the library to load. Only the first call counts.
pub fn set_library(path: &Path) {
    let _ = LIBRARY_PATH.set(path.to_owned());
}

/// Returns the loaded plugin.
pub(crate) fn get() -> Result<&'static CudaPlugin, Status> {
    PLUGIN.get_or_init(load).as_ref().map_err(Status::clone)
}

/// Returns the library that is loaded or will be; `None` if nothing names one.
pub(crate) fn library_path() -> Option<PathBuf> {
    let variable = || std::env::var_os("VRAMFIT_REAL_PLUGIN").map(PathBuf::from);
    LIBRARY_PATH.get().cloned().or_else(variable)
}

fn load() -> Result<CudaPlugin, Status> {
    let unavailable = |what: String| Status::new(StatusCode::Unavailable, what);
    let path = library_path().ok_or_else(|| {
        unavailable(
            "the path of the CUDA plugin is unknown: `VRAMFIT_REAL_PLUGIN` is not set".to_owned(),
        )
    })?;
    // SAFETY: the plugin's initializers are those that run when JAX itself loads it.
    let library = unsafe { libloading::Library::new(&path) }
        .map_err(|error| unavailable(format!("cannot load `{}`: {error}", path.display())))?;
    // SAFETY: the symbol has this type in every PJRT plugin.
    let header = unsafe {
        let entry: libloading::Symbol<'_, unsafe extern "C" fn() -> *const ApiHeader> =
            library.get(b"GetPjrtApi\0").map_err(|error| {
                unavailable(format!("`{}` is not a PJRT plugin: {error}", path.display()))
            })?;
        entry()
    };
    if header.is_null() {
        return Err(unavailable(format!("`{}` has no table of functions", path.display())));
    }
    // Never unloaded: its objects and thread-locals live as long as the process.
    std::mem::forget(library);
    // SAFETY: the table is the plugin's.
    Ok(unsafe { CudaPlugin::from_table(header) })
}

impl CudaPlugin {
    /// Returns the plugin of a table, however it was loaded.
    ///
    /// # Safety
    /// `head` is followed by as many functions as it says, for as long as the process lives.
    pub(crate) unsafe fn from_table(header: *const ApiHeader) -> Self {
        let functions = {
            let bytes = (*header).struct_size.saturating_sub(size_of::<ApiHeader>());
            let first = header.add(1).cast::<Option<Function>>();
            slice::from_raw_parts(first, bytes / size_of::<Function>())
        };
        let functions =
            NAMES.iter().zip(functions).filter_map(|(name, f)| Some((*name, (*f)?))).collect();
        CudaPlugin { header, functions }
    }

    pub(crate) fn table(&self) -> *const ApiHeader {
        self.header
    }

    /// Returns the header of the table: size, extensions, version.
    pub(crate) fn header(&self) -> ApiHeader {
        // SAFETY: valid since loading.
        unsafe { *self.header }
    }

    pub(crate) fn minor_version(&self) -> c_int {
        self.header().minor
    }

    /// Returns how many functions its table has.
    pub(crate) fn function_count(&self) -> usize {
        (self.header().struct_size - size_of::<ApiHeader>()) / size_of::<Function>()
    }

    pub(crate) fn function(&self, name: &str) -> Option<Function> {
        self.functions.get(name).copied()
    }

    /// Calls a function and converts its error.
    ///
    /// # Safety
    /// `args` is the argument struct of that function, with its size set.
    pub(crate) unsafe fn call<T>(&self, name: &str, args: &mut T) -> PjrtResult {
        let function = self
            .function(name)
            .ok_or_else(|| Status::unimplemented(&format!("{name} (not in the CUDA plugin)")))?;
        let error = function(ptr::from_mut(args).cast::<c_void>());
        if error.is_null() { Ok(()) } else { Err(self.take_error(error)) }
    }

    /// Converts an error of the CUDA plugin and frees it.
    ///
    /// # Safety
    /// `error` is a live error of the real plugin's.
    pub(crate) unsafe fn take_error(&self, error: *mut Error) -> Status {
        let mut message: ErrorMessageArgs = zeroed_struct();
        message.error = error;
        let mut code: ErrorGetCodeArgs = zeroed_struct();
        code.error = error;
        let mut destroy: ErrorDestroyArgs = zeroed_struct();
        destroy.error = error;
        let call = |name: &str, args: *mut c_void| {
            if let Some(function) = self.function(name) {
                // Of these three, two return nothing and one can only fail on a wrong size.
                let _ = function(args);
            }
        };
        call("PJRT_Error_Message", (&raw mut message).cast());
        call("PJRT_Error_GetCode", (&raw mut code).cast());
        let text = pointers::text(message.message, message.message_size);
        call("PJRT_Error_Destroy", (&raw mut destroy).cast());
        Status::with_code(code.code, text)
    }
}

/// Returns a struct of the C API that is all zeros except for its size.
pub(crate) fn zeroed_struct<T: Copy>() -> T {
    // SAFETY: argument structs are plain data; null pointers, zeros and `None` are valid in each,
    // and each begins with its size.
    unsafe {
        let mut value = std::mem::zeroed::<T>();
        (&raw mut value).cast::<usize>().write(size_of::<T>());
        value
    }
}

/// Returns the CUDA version the plugin was built for, such as 13000.
pub(crate) fn cuda_version() -> Option<i64> {
    let mut args: crate::pjrt::abi::client::PluginAttributesArgs = zeroed_struct();
    // SAFETY: the attributes live as long as the process, and field and type go together.
    unsafe {
        get().ok()?.call("PJRT_Plugin_Attributes", &mut args).ok()?;
        let mut attributes = pointers::list(args.attributes, args.num_attributes).iter();
        let version = attributes.find(|value| {
            value.r#type == 1 && pointers::text(value.name, value.name_size) == "cuda_version"
        });
        version.map(|value| value.value.int64)
    }
}
