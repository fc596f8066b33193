//! The functions of the CUDA driver library that are called, and their errors.
//!
//! Numbers, names and types are those of `cuda.h`; functions with a `_v2` at the end are those that
//! its macros stand for.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_uint, c_void};
use std::fmt;

use libloading::Library;
use vramfit_model::{Error, ErrorKind};

use crate::DriverUnavailable;

/// The name under which every driver installs it.
const LIBRARY: &str = "libcuda.so.1";

/// The variable that names another file.
const LIBRARY_VARIABLE: &str = "VRAMFIT_CUDA";

type Code = c_uint;
const SUCCESS: Code = 0;
pub(crate) const OUT_OF_MEMORY: Code = 2;
const NO_DEVICE: Code = 100;
const NOT_PERMITTED: Code = 800;
const DRIVER_MISMATCH: Code = 803;

pub(crate) type Device = c_int;
pub(crate) type Context = *mut c_void;
pub(crate) type Address = u64;
pub(crate) type Uuid = [u8; 16];

/// Declares the table of functions and how it is looked up.
macro_rules! functions {
    ($($name:ident($($kind:ty),*);)*) => {
        /// CUDA's driver library, open.
        #[derive(Debug)]
        #[allow(non_snake_case, reason = "the names are CUDA's")]
        pub(crate) struct Cuda {
            $(pub(crate) $name: unsafe extern "C" fn($($kind),*) -> Code,)*
        }

        impl Cuda {
            fn load_symbols(library: &Library, path: &str) -> Result<Cuda, DriverUnavailable> {
                Ok(Cuda {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the one that `cuda.h` declares for this name.
                        let found = unsafe { library.get(name.as_bytes()) };
                        *found.map_err(|_| DriverUnavailable::TooOld {
                            library: path.to_owned(),
                            function: stringify!($name).to_owned(),
                        })?
                    },)*
                })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuGetErrorName(Code, *mut *const c_char);
    cuGetErrorString(Code, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut Device, c_int);
    cuDeviceGetName(*mut c_char, c_int, Device);
    cuDeviceGetUuid_v2(*mut Uuid, Device);
    cuDeviceTotalMem_v2(*mut usize, Device);
    cuDevicePrimaryCtxRetain(*mut Context, Device);
    cuDevicePrimaryCtxRelease_v2(Device);
    cuCtxSetCurrent(Context);
    cuCtxSynchronize();
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut Address, usize);
    cuMemFree_v2(Address);
    cuMemsetD32_v2(Address, c_uint, usize);
    cuMemcpyDtoH_v2(*mut c_void, Address, usize);
}

/// What a function of CUDA returned instead of success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CudaError {
    /// CUDA's number for it.
    pub(crate) code: Code,
    /// The call that failed.
    function: &'static str,
    /// CUDA's own name and text.
    description: String,
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.description)
    }
}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Self {
        Error::new(ErrorKind::NoDriver, "a CUDA driver call failed")
            .cause(&error)
            .hint("`nvidia-smi` and `sudo dmesg | grep -i nvrm` show the state of the GPU")
    }
}

/// Returns the library to open: that of the variable, else what the dynamic loader finds.
pub(crate) fn library() -> OsString {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    named.unwrap_or_else(|| LIBRARY.into())
}

impl Cuda {
    /// Opens the library and initializes it.
    pub(crate) fn open(path: &OsStr) -> Result<Cuda, DriverUnavailable> {
        let shown = path.to_string_lossy();
        // SAFETY: a driver's library may run code when it is loaded, as it does in every program
        // that computes on a GPU.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| DriverUnavailable::LibraryMissing {
            library: shown.clone().into_owned(),
            cause: error.to_string(),
        })?;
        let cuda = Cuda::load_symbols(&library, &shown)?;
        // The driver keeps threads of its own, so it is never unloaded.
        std::mem::forget(library);
        // SAFETY: zero is the only value that the function accepts.
        let code = unsafe { (cuda.cuInit)(0) };
        match cuda.check("cuInit", code) {
            Ok(()) => Ok(cuda),
            Err(error) => Err(match error.code {
                NO_DEVICE => DriverUnavailable::NoGpus,
                NOT_PERMITTED => DriverUnavailable::NoPermission,
                DRIVER_MISMATCH => DriverUnavailable::VersionMismatch,
                _ => DriverUnavailable::Other(error.to_string()),
            }),
        }
    }

    /// Turns what a call returned into a result.
    pub(crate) fn check(&self, function: &'static str, code: Code) -> Result<(), CudaError> {
        if code == SUCCESS {
            return Ok(());
        }
        let name = self.text(self.cuGetErrorName, code);
        let text = self.text(self.cuGetErrorString, code);
        let description = match (name, text) {
            (Some(name), Some(text)) => format!("{name} ({text})"),
            _ => format!("error {code}, unknown to this driver"),
        };
        Err(CudaError { code, function, description })
    }

    fn text(
        &self,
        function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
        code: Code,
    ) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: `text` outlives the call, and what it then points to is never freed.
        unsafe {
            if function(code, &mut text) != SUCCESS || text.is_null() {
                return None;
            }
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}
