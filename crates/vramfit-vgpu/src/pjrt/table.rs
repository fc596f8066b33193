//! The API table that JAX calls through: one trampoline per function, which counts the call, catches
//! panics, and calls this crate's function or the CUDA plugin's, or returns "not available".
//!
//! Every function of the API has the same C shape: a pointer to its argument struct in, a pointer
//! to an error out. (Two return nothing; what we return is then ignored.)

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pjrt::abi::{ApiHeader, Error, Function};
use crate::pjrt::cuda_plugin;
use crate::pjrt::dispatch::{Dispatch, dispatch_of};
use crate::pjrt::error;
use crate::pjrt::extensions;
use crate::pjrt::names::NAMES;
use crate::pjrt::status::Status;

/// More than any release has; entries beyond [`NAMES`] answer "not available".
const SLOTS: usize = 144;

#[repr(C)]
struct Table {
    head: ApiHeader,
    functions: [Function; SLOTS],
}

// SAFETY: the table is constant once built; its pointers lead to constant data.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();
static DISPATCH: OnceLock<Vec<Dispatch>> = OnceLock::new();
static CALLS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

/// Returns the virtual GPU's table, or null when the real plugin cannot be loaded (the reason is
/// logged).
pub(crate) fn api() -> *const ApiHeader {
    let plugin = match cuda_plugin::get() {
        Ok(plugin) => plugin,
        Err(status) => {
            crate::session::log::print_line(&status.to_string());
            return ptr::null();
        }
    };
    let table = TABLE.get_or_init(|| {
        DISPATCH.get_or_init(|| NAMES.iter().map(|name| dispatch_of(name, plugin)).collect());
        let mut head = plugin.header();
        // Never more functions than both sides know: for JAX the size says which functions exist.
        let entries = plugin.function_count().min(NAMES.len());
        head.struct_size = size_of::<ApiHeader>() + entries * size_of::<Function>();
        // SAFETY: the chain belongs to the loaded plugin.
        head.extension_start = unsafe { extensions::copy_chain(head.extension_start) };
        Table { head, functions: TRAMPOLINES }
    });
    ptr::from_ref(table).cast()
}

/// Returns the functions that were called, in the order of the table: how often, and whether
/// there is such a function here.
pub fn calls() -> Vec<(&'static str, u64, bool)> {
    let missing = |slot| {
        let dispatch: Option<&Dispatch> = DISPATCH.get().and_then(|dispatch| dispatch.get(slot));
        matches!(dispatch, Some(Dispatch::Missing))
    };
    NAMES
        .iter()
        .zip(&CALLS)
        .enumerate()
        .map(|(slot, (name, count))| (*name, count.load(Ordering::Relaxed), !missing(slot)))
        .filter(|(_, count, _)| *count > 0)
        .collect()
}

unsafe extern "C" fn trampoline<const SLOT: usize>(args: *mut c_void) -> *mut Error {
    CALLS[SLOT].fetch_add(1, Ordering::Relaxed);
    let result = match DISPATCH.get().and_then(|dispatch| dispatch.get(SLOT)) {
        // SAFETY: JAX passes the argument struct that belongs to this entry.
        Some(Dispatch::Forward(function)) => return unsafe { function(args) },
        // SAFETY: as above.
        Some(Dispatch::Handle(function)) => {
            catch_unwind(AssertUnwindSafe(|| unsafe { function(args) })).unwrap_or_else(|panic| {
                let what = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("unknown");
                Err(Status::internal(format!(
                    "vramfit has a bug in {}: {what}",
                    NAMES.get(SLOT).unwrap_or(&"an unknown function")
                )))
            })
        }
        Some(Dispatch::Accept) => Ok(()),
        Some(Dispatch::Missing) | None => {
            Err(Status::unimplemented(NAMES.get(SLOT).unwrap_or(&"a function newer than 0.112")))
        }
    };
    match result {
        Ok(()) => ptr::null_mut(),
        Err(status) => error::into_raw(status),
    }
}

macro_rules! trampolines {
    ($($slot:literal)*) => {
        [$(trampoline::<$slot>,)*]
    };
}

static TRAMPOLINES: [Function; SLOTS] = trampolines! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
    30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55
    56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81
    82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105
    106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125
    126 127 128 129 130 131 132 133 134 135 136 137 138 139 140 141 142 143
};
