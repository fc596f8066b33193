//! The memory spaces of a device: its own memory, and pinned host memory.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use vramfit_model::program::MemorySpace;

use crate::device::virtual_device::Device;
use crate::lock;
use crate::pjrt::abi::device::{
    MemoryAddressableByDevicesArgs, MemoryDebugStringArgs, MemoryIdArgs, MemoryKindArgs,
    MemoryKindIdArgs,
};
use crate::pjrt::abi::{self, MemoryFunctions};
use crate::pjrt::pointers::{self, list_parts, text_parts};
use crate::pjrt::status::PjrtResult;

/// One memory space of a device. Its first word is read by JAX (since API 0.109), so the order of the
/// fields matters.
#[repr(C)]
pub(crate) struct Memory {
    functions: *const MemoryFunctions,
    pub(crate) device: &'static Device,
    pub(crate) kind: MemoryKind,
    id: c_int,
    debug_string: String,
    device_pointer: [*mut abi::Device; 1],
    user_data: Mutex<HashMap<usize, UserData>>,
}

/// The kinds of memory that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device,
    PinnedHost,
}

impl MemoryKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            MemoryKind::Device => "device",
            MemoryKind::PinnedHost => "pinned_host",
        }
    }

    /// Returns the memory space of arrays in it.
    pub(crate) fn space(self) -> MemorySpace {
        match self {
            MemoryKind::Device => MemorySpace::Device,
            MemoryKind::PinnedHost => MemorySpace::Host,
        }
    }
}

struct UserData {
    data: *mut c_void,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
}

static MEMORY_FUNCTIONS: MemoryFunctions = MemoryFunctions {
    struct_size: size_of::<MemoryFunctions>(),
    extension_start: ptr::null_mut(),
    instance_size: size_of::<*const MemoryFunctions>(),
    get_user_data,
    set_user_data,
};

// SAFETY: constant function pointers.
unsafe impl Sync for MemoryFunctions {}

impl Memory {
    pub(crate) fn new(device: &'static Device, kind: MemoryKind) -> Self {
        let id = device.id;
        Memory {
            functions: &raw const MEMORY_FUNCTIONS,
            device,
            kind,
            id: (2 * id) as c_int + c_int::from(kind == MemoryKind::PinnedHost),
            debug_string: format!("{}(cuda:{id})", kind.name()),
            device_pointer: [device.raw()],
            user_data: Mutex::default(),
        }
    }

    pub(crate) fn raw(memory: &Memory) -> *mut abi::Memory {
        ptr::from_ref(memory).cast_mut().cast()
    }
}

/// Returns the memory of a handle.
///
/// # Safety
/// `raw` came from [`Memory::raw`] or is null.
pub(crate) unsafe fn from_raw(raw: *mut abi::Memory) -> Option<&'static Memory> {
    raw.cast::<Memory>().cast_const().as_ref()
}

unsafe fn require_memory<'a>(memory: *mut abi::Memory) -> PjrtResult<&'a Memory> {
    pointers::object(memory, "no memory")
}

pub(crate) unsafe fn id(args: &mut MemoryIdArgs) -> PjrtResult {
    args.id = require_memory(args.memory)?.id;
    Ok(())
}

pub(crate) unsafe fn kind(args: &mut MemoryKindArgs) -> PjrtResult {
    (args.kind, args.kind_size) = text_parts(require_memory(args.memory)?.kind.name());
    Ok(())
}

pub(crate) unsafe fn kind_id(args: &mut MemoryKindIdArgs) -> PjrtResult {
    // The CUDA client derives the id from a hash of the kind's name; JAX only compares ids.
    args.kind_id = match require_memory(args.memory)?.kind {
        MemoryKind::Device => 0,
        MemoryKind::PinnedHost => 1,
    };
    Ok(())
}

pub(crate) unsafe fn debug_string(args: &mut MemoryDebugStringArgs) -> PjrtResult {
    let memory = require_memory(args.memory)?;
    (args.debug_string, args.debug_string_size) = text_parts(&memory.debug_string);
    Ok(())
}

pub(crate) unsafe fn devices(args: &mut MemoryAddressableByDevicesArgs) -> PjrtResult {
    (args.devices, args.num_devices) = list_parts(&require_memory(args.memory)?.device_pointer);
    Ok(())
}

unsafe extern "C" fn get_user_data(raw: *mut abi::Memory, key: *const c_void) -> *mut c_void {
    let Ok(memory) = require_memory(raw) else {
        return ptr::null_mut();
    };
    lock(&memory.user_data).get(&(key as usize)).map_or(ptr::null_mut(), |entry| entry.data)
}

unsafe extern "C" fn set_user_data(
    raw: *mut abi::Memory,
    key: *const c_void,
    data: *mut c_void,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
) {
    let Ok(memory) = require_memory(raw) else {
        return;
    };
    let before = lock(&memory.user_data).insert(key as usize, UserData { data, destroy });
    if let Some(UserData { data, destroy: Some(destroy) }) = before {
        destroy(data);
    }
}
