//! The functions of CUDA's driver library that vramfit calls. Numbers are those of `cuda.h`.
//!
//! Memory is addresses and a record of who holds it. What was written is remembered by block, since
//! only fills of whole blocks are asked for.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vramfit_model::host::{GpuMemory, HostGpu};

use crate::description::Description;
use crate::device_allocations::DeviceAllocations;
use crate::{c_string, nvml};

type Code = c_uint;
type Context = *mut c_void;

const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const NO_DEVICE: Code = 100;
const INVALID_DEVICE: Code = 101;
const INVALID_CONTEXT: Code = 201;

/// A GPU hands memory out in pages of this size.
const PAGE: u64 = 2 << 20;
/// Where the first allocation lies, as on real GPUs.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000;

/// What this process has.
struct State {
    /// Position of the GPU whose context is current.
    current: Option<usize>,
    /// Allocations: address to position of the GPU and bytes.
    pieces: BTreeMap<u64, (usize, u64)>,
    /// What was written: address to bytes and word.
    fills: BTreeMap<u64, (u64, u32)>,
    next_address: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    current: None,
    pieces: BTreeMap::new(),
    fills: BTreeMap::new(),
    next_address: FIRST_ADDRESS,
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call, unless an error is asked for. `position` is the GPU it is about.
fn call(
    function: &str,
    position: Option<usize>,
    work: impl FnOnce(&Description) -> Option<Code>,
) -> Code {
    let description = Description::read();
    description
        .forced_error(function, position)
        .or_else(|| work(&description))
        .unwrap_or(INVALID_VALUE)
}

/// Runs a call about a device, which is the position of its GPU.
fn call_device(
    function: &str,
    device: c_int,
    work: impl FnOnce(&Description, usize, &HostGpu) -> Option<Code>,
) -> Code {
    let position = device as usize;
    call(function, Some(position), |description| match description.host.gpus.get(position) {
        Some(gpu) => work(description, position, gpu),
        None => Some(INVALID_DEVICE),
    })
}

/// Runs a call that needs a context.
fn call_current(
    function: &str,
    work: impl FnOnce(&mut State, &Description, usize) -> Option<Code>,
) -> Code {
    let mut state = state();
    let Some(position) = state.current else {
        return INVALID_CONTEXT;
    };
    call(function, Some(position), |description| work(&mut state, description, position))
}

/// A GPU's memory as CUDA counts it: what is reserved is not part of it.
fn memory(description: &Description, position: usize) -> Option<GpuMemory> {
    let memory = nvml::memory(&description.host.gpus[position], position)?;
    Some(GpuMemory {
        total_bytes: memory.total_bytes - memory.reserved_bytes.unwrap_or(0),
        ..memory
    })
}

unsafe fn write_out<T>(to: *mut T, value: T) -> Option<Code> {
    to.write(value);
    Some(SUCCESS)
}

const ERRORS: &[(Code, &CStr, &CStr)] = &[
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (NO_DEVICE, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (
        803,
        c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        c"system has unsupported display driver / cuda driver combination",
    ),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// Writes the name or the text of an error.
unsafe fn write_error_text(
    code: Code,
    to: *mut *const c_char,
    text: fn(&(Code, &'static CStr, &'static CStr)) -> &'static CStr,
) -> Code {
    let known = ERRORS.iter().find(|(known, ..)| *known == code);
    known.and_then(|error| write_out(to, text(error).as_ptr())).unwrap_or(INVALID_VALUE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: Code, to: *mut *const c_char) -> Code {
    write_error_text(code, to, |(_, name, _)| name)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: Code, to: *mut *const c_char) -> Code {
    write_error_text(code, to, |(_, _, text)| text)
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Code {
    call("cuInit", None, |description| {
        let empty = description.usable().is_empty();
        Some(if empty { NO_DEVICE } else { SUCCESS })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(to: *mut c_int) -> Code {
    call("cuDeviceGetCount", None, |description| write_out(to, description.usable().len() as c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> Code {
    call("cuDeviceGet", None, |description| match description.usable().get(ordinal as usize) {
        Some(position) => write_out(to, *position as c_int),
        None => Some(INVALID_DEVICE),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) -> Code {
    call_device("cuDeviceGetName", device, |_, _, gpu| {
        c_string::copy_to_buffer(&gpu.name, to, length as u32).then_some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(to: *mut [u8; 16], device: c_int) -> Code {
    call_device("cuDeviceGetUuid_v2", device, |_, _, gpu| {
        let digits: String = gpu.uuid.split_once('-')?.1.replace('-', "");
        let number = u128::from_str_radix(&digits, 16).ok()?;
        write_out(to, number.to_be_bytes())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, device: c_int) -> Code {
    call_device("cuDeviceTotalMem_v2", device, |description, position, _| {
        write_out(to, memory(description, position)?.total_bytes as usize)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut Context, device: c_int) -> Code {
    call_device("cuDevicePrimaryCtxRetain", device, |description, position, _| {
        if memory(description, position)?.free_bytes < description.context_bytes {
            return Some(OUT_OF_MEMORY);
        }
        DeviceAllocations::own().add(position, description.context_bytes as i64);
        write_out(to, (position + 1) as Context)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    call_device("cuDevicePrimaryCtxRelease_v2", device, |description, position, _| {
        DeviceAllocations::own().add(position, -(description.context_bytes as i64));
        state().current = None;
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Context) -> Code {
    call("cuCtxSetCurrent", None, |_| {
        state().current = (context as usize).checked_sub(1);
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Code {
    call_current("cuCtxSynchronize", |_, _, _| Some(SUCCESS))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    call_current("cuMemGetInfo_v2", |_, description, position| {
        let memory = memory(description, position)?;
        write_out(free, memory.free_bytes as usize);
        write_out(total, memory.total_bytes as usize)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> Code {
    call_current("cuMemAlloc_v2", |state, description, position| {
        let bytes = (bytes as u64).next_multiple_of(PAGE);
        let free = memory(description, position)?.free_bytes;
        if bytes > free.saturating_sub(description.withheld_bytes) {
            return Some(OUT_OF_MEMORY);
        }
        let address = state.next_address;
        state.next_address += bytes;
        state.pieces.insert(address, (position, bytes));
        DeviceAllocations::own().add(position, bytes as i64);
        write_out(to, address)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Code {
    call_current("cuMemFree_v2", |state, _, _| {
        let (position, bytes) = state.pieces.remove(&address)?;
        state.fills.retain(|at, _| !(address..address + bytes).contains(at));
        DeviceAllocations::own().add(position, -(bytes as i64));
        Some(SUCCESS)
    })
}

/// Whether a range lies in memory that was allocated.
fn is_held(state: &State, address: u64, bytes: u64) -> bool {
    let piece = state.pieces.range(..=address).next_back();
    piece.is_some_and(|(start, (_, size))| address + bytes <= start + size)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32_v2(address: u64, word: c_uint, words: usize) -> Code {
    call_current("cuMemsetD32_v2", |state, _, _| {
        let bytes = 4 * words as u64;
        is_held(state, address, bytes).then(|| {
            state.fills.insert(address, (bytes, word));
            SUCCESS
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, address: u64, bytes: usize) -> Code {
    call_current("cuMemcpyDtoH_v2", |state, description, _| {
        if bytes != 4 || !is_held(state, address, 4) {
            return None;
        }
        let fill = state.fills.range(..=address).next_back();
        let word = fill
            .filter(|(start, (size, _))| address < *start + size && !description.reads_zeros)
            .map_or(0, |(_, (_, word))| *word);
        write_out(to.cast(), word)
    })
}
