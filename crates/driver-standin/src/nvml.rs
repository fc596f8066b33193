//! The functions of NVML that vramfit calls. Numbers and layouts are those of `nvml.h`.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use vramfit_core::machine::{Card, ComputeMode, Memory, Mig, ProcessKind};

use crate::book::Book;
use crate::description::Description;
use crate::text;

type Return = c_uint;
/// The position of a card plus one, since a handle is not null.
type Device = *mut c_void;

const SUCCESS: Return = 0;
const INVALID_ARGUMENT: Return = 2;
const NOT_SUPPORTED: Return = 3;
const NOT_FOUND: Return = 6;
const INSUFFICIENT_SIZE: Return = 7;
/// As many slices as a card can have.
const MAX_SLICES: c_uint = 7;
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_t`.
#[repr(C)]
struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t`, of the second and third version alike.
#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlUtilization_t`.
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// Answers a question about the machine.
fn ask(function: &str, answer: impl FnOnce(&Description) -> Option<Return>) -> Return {
    let description = Description::read();
    description
        .forced(function, None)
        .or_else(|| answer(&description))
        .unwrap_or(NOT_SUPPORTED)
}

/// Answers a question about a card; `None` is what the card does not support.
fn ask_card(
    function: &str,
    device: Device,
    answer: impl FnOnce(&Description, usize, &Card) -> Option<Return>,
) -> Return {
    let description = Description::read();
    let position = (device as usize).wrapping_sub(1);
    let Some(card) = description.machine.cards.get(position) else {
        return INVALID_ARGUMENT;
    };
    description
        .forced(function, Some(position))
        .or_else(|| answer(&description, position, card))
        .unwrap_or(NOT_SUPPORTED)
}

/// Writes an answer.
unsafe fn give<T>(to: *mut T, value: T) -> Option<Return> {
    to.write(value);
    Some(SUCCESS)
}

unsafe fn give_text(value: &str, to: *mut c_char, length: c_uint) -> Option<Return> {
    let fits = text::put(value, to, length);
    Some(if fits { SUCCESS } else { INSUFFICIENT_SIZE })
}

/// What a card's memory is now: as described, with what the processes of the book hold.
pub(crate) fn memory(card: &Card, position: usize) -> Option<Memory> {
    let described = card.memory?;
    let book = Book::own();
    let held: u64 = book.holders(position).values().sum();
    Some(Memory {
        used_bytes: described.used_bytes + held,
        free_bytes: described.free_bytes.saturating_sub(held),
        ..described
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Return {
    ask("nvmlInit_v2", |_| Some(SUCCESS))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, length: c_uint) -> Return {
    ask("nvmlSystemGetDriverVersion", |description| {
        give_text(description.machine.driver.as_ref()?, to, length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> Return {
    ask("nvmlSystemGetCudaDriverVersion_v2", |description| {
        let (major, minor) = description.machine.cuda.as_ref()?.split_once('.')?;
        let (major, minor): (c_int, c_int) = (major.parse().ok()?, minor.parse().ok()?);
        give(to, major * 1000 + minor * 10)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> Return {
    ask("nvmlDeviceGetCount_v2", |description| {
        let cards = description.machine.cards.iter();
        let whole = cards.filter(|card| !matches!(card.mig, Mig::Slice { .. }));
        give(to, whole.count() as c_uint)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> Return {
    let description = Description::read();
    let Some(position) = description.whole(index) else {
        return INVALID_ARGUMENT;
    };
    let device = (position + 1) as Device;
    ask_card("nvmlDeviceGetHandleByIndex_v2", device, |_, _, _| {
        give(to, device)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Device, to: *mut c_char, length: c_uint) -> Return {
    ask_card("nvmlDeviceGetName", device, |_, _, card| {
        give_text(&card.name, to, length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, length: c_uint) -> Return {
    ask_card("nvmlDeviceGetUUID", device, |_, _, card| {
        give_text(&card.uuid, to, length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Device,
    major: *mut c_int,
    minor: *mut c_int,
) -> Return {
    ask_card(
        "nvmlDeviceGetCudaComputeCapability",
        device,
        |_, _, card| {
            let capability = card.compute_capability?;
            give(major, capability.0 as c_int);
            give(minor, capability.1 as c_int)
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, to: *mut MemoryV1) -> Return {
    ask_card("nvmlDeviceGetMemoryInfo", device, |_, position, card| {
        let memory = memory(card, position)?;
        let used = memory.used_bytes + memory.reserved_bytes.unwrap_or(0);
        give(
            to,
            MemoryV1 {
                total: memory.total_bytes,
                free: memory.free_bytes,
                used,
            },
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut MemoryV2) -> Return {
    ask_card("nvmlDeviceGetMemoryInfo_v2", device, |_, position, card| {
        if (*to).version != 2 << 24 | size_of::<MemoryV2>() as c_uint {
            return Some(INVALID_ARGUMENT);
        }
        let memory = memory(card, position)?;
        (*to).total = memory.total_bytes;
        (*to).reserved = memory.reserved_bytes.unwrap_or(0);
        (*to).free = memory.free_bytes;
        (*to).used = memory.used_bytes;
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, to: *mut Utilization) -> Return {
    ask_card("nvmlDeviceGetUtilizationRates", device, |_, _, card| {
        let gpu = card.utilization_percent?;
        give(to, Utilization { gpu, memory: 0 })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    to: *mut c_uint,
) -> Return {
    ask_card("nvmlDeviceGetTemperature", device, |_, _, card| {
        give(to, card.temperature_c?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetPowerUsage", device, |_, _, card| {
        give(to, card.power_mw?.0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetEnforcedPowerLimit", device, |_, _, card| {
        give(to, card.power_mw?.1)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDisplayActive(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetDisplayActive", device, |_, _, card| {
        give(to, card.display?.into())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDisplayMode(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetDisplayMode", device, |_, _, card| {
        give(to, card.display?.into())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeMode(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetComputeMode", device, |_, _, card| {
        let mode = match card.compute_mode? {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        };
        give(to, mode)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Return {
    ask_card("nvmlDeviceGetMigMode", device, |_, _, card| {
        let divided = c_uint::from(card.mig == Mig::Parent);
        give(current, divided);
        give(pending, divided)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetMaxMigDeviceCount", device, |_, _, _| {
        give(to, MAX_SLICES)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Device,
    wanted: c_uint,
    to: *mut Device,
) -> Return {
    ask_card(
        "nvmlDeviceGetMigDeviceHandleByIndex",
        device,
        |description, _, parent| {
            let is_it = |card: &Card| {
                card.index == parent.index
                    && matches!(card.mig, Mig::Slice { number, .. } if number == wanted)
            };
            match description.machine.cards.iter().position(is_it) {
                Some(position) => give(to, (position + 1) as Device),
                None => Some(NOT_FOUND),
            }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: Device, to: *mut c_uint) -> Return {
    ask_card("nvmlDeviceGetGpuInstanceId", device, |_, _, card| {
        let Mig::Slice { gpu_instance, .. } = card.mig else {
            return None;
        };
        give(to, gpu_instance?)
    })
}

/// Answers with a list of processes, in the way of C: first how many there are, then they.
unsafe fn processes(
    function: &str,
    device: Device,
    is_wanted: fn(ProcessKind) -> bool,
    count: *mut c_uint,
    to: *mut ProcessInfo,
) -> Return {
    ask_card(function, device, |_, position, card| {
        let described = card.processes.iter().filter(|one| is_wanted(one.kind));
        let mut all: Vec<(u32, u64)> = described
            .map(|one| (one.pid, one.used_bytes.unwrap_or(NOT_AVAILABLE)))
            .collect();
        if is_wanted(ProcessKind::Compute) {
            all.extend(Book::own().holders(position));
        }
        let room = if to.is_null() { 0 } else { *count as usize };
        *count = all.len() as c_uint;
        if all.len() > room {
            return Some(INSUFFICIENT_SIZE);
        }
        for (at, (pid, used)) in all.into_iter().enumerate() {
            to.add(at).write(ProcessInfo {
                pid,
                used,
                gpu_instance: c_uint::MAX,
                compute_instance: c_uint::MAX,
            });
        }
        Some(SUCCESS)
    })
}

fn computes(kind: ProcessKind) -> bool {
    kind != ProcessKind::Graphics
}

fn draws(kind: ProcessKind) -> bool {
    kind != ProcessKind::Compute
}

/// Exports a list under its name of each version; the layout is the same.
macro_rules! lists {
    ($($name:ident: $wanted:ident,)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            device: Device,
            count: *mut c_uint,
            to: *mut ProcessInfo,
        ) -> Return {
            processes(stringify!($name), device, $wanted, count, to)
        }
    )*};
}

lists! {
    nvmlDeviceGetComputeRunningProcesses_v2: computes,
    nvmlDeviceGetComputeRunningProcesses_v3: computes,
    nvmlDeviceGetGraphicsRunningProcesses_v2: draws,
    nvmlDeviceGetGraphicsRunningProcesses_v3: draws,
}
