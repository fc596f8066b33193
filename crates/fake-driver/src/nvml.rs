//! The functions of NVML that vramfit calls. Numbers and layouts are those of `nvml.h`.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use vramfit_model::host::{ComputeMode, GpuMemory, HostGpu, Mig, ProcessKind};

use crate::c_string;
use crate::description::Description;
use crate::device_allocations::DeviceAllocations;

type Return = c_uint;
/// The position of a GPU plus one, since a handle is not null.
type Device = *mut c_void;

const SUCCESS: Return = 0;
const INVALID_ARGUMENT: Return = 2;
const NOT_SUPPORTED: Return = 3;
const NOT_FOUND: Return = 6;
const INSUFFICIENT_SIZE: Return = 7;
/// As many slices as a GPU can have.
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
fn query(function: &str, answer: impl FnOnce(&Description) -> Option<Return>) -> Return {
    let description = Description::read();
    description
        .forced_error(function, None)
        .or_else(|| answer(&description))
        .unwrap_or(NOT_SUPPORTED)
}

/// Answers a question about a GPU; `None` is what the GPU does not support.
fn query_gpu(
    function: &str,
    device: Device,
    answer: impl FnOnce(&Description, usize, &HostGpu) -> Option<Return>,
) -> Return {
    let description = Description::read();
    let position = (device as usize).wrapping_sub(1);
    let Some(gpu) = description.host.gpus.get(position) else {
        return INVALID_ARGUMENT;
    };
    description
        .forced_error(function, Some(position))
        .or_else(|| answer(&description, position, gpu))
        .unwrap_or(NOT_SUPPORTED)
}

/// Writes an answer.
unsafe fn write_out<T>(to: *mut T, value: T) -> Option<Return> {
    to.write(value);
    Some(SUCCESS)
}

unsafe fn write_string(value: &str, to: *mut c_char, length: c_uint) -> Option<Return> {
    let fits = c_string::copy_to_buffer(value, to, length);
    Some(if fits { SUCCESS } else { INSUFFICIENT_SIZE })
}

/// What a GPU's memory is now: as described, with what the processes in the record hold.
pub(crate) fn memory(gpu: &HostGpu, position: usize) -> Option<GpuMemory> {
    let described = gpu.memory?;
    let device_allocations = DeviceAllocations::own();
    let held: u64 = device_allocations.process_usage(position).values().sum();
    Some(GpuMemory {
        used_bytes: described.used_bytes + held,
        free_bytes: described.free_bytes.saturating_sub(held),
        ..described
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Return {
    query("nvmlInit_v2", |_| Some(SUCCESS))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, length: c_uint) -> Return {
    query("nvmlSystemGetDriverVersion", |description| {
        write_string(description.host.driver.as_ref()?, to, length)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) -> Return {
    query("nvmlSystemGetCudaDriverVersion_v2", |description| {
        let (major, minor) = description.host.cuda.as_ref()?.split_once('.')?;
        let (major, minor): (c_int, c_int) = (major.parse().ok()?, minor.parse().ok()?);
        write_out(to, major * 1000 + minor * 10)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> Return {
    query("nvmlDeviceGetCount_v2", |description| {
        let gpus = description.host.gpus.iter();
        let whole = gpus.filter(|gpu| !matches!(gpu.mig, Mig::Instance { .. }));
        write_out(to, whole.count() as c_uint)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> Return {
    let description = Description::read();
    let Some(position) = description.whole_gpu(index) else {
        return INVALID_ARGUMENT;
    };
    let device = (position + 1) as Device;
    query_gpu("nvmlDeviceGetHandleByIndex_v2", device, |_, _, _| write_out(to, device))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Device, to: *mut c_char, length: c_uint) -> Return {
    query_gpu("nvmlDeviceGetName", device, |_, _, gpu| write_string(&gpu.name, to, length))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, length: c_uint) -> Return {
    query_gpu("nvmlDeviceGetUUID", device, |_, _, gpu| write_string(&gpu.uuid, to, length))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Device,
    major: *mut c_int,
    minor: *mut c_int,
) -> Return {
    query_gpu("nvmlDeviceGetCudaComputeCapability", device, |_, _, gpu| {
        let capability = gpu.compute_capability?;
        write_out(major, capability.0 as c_int);
        write_out(minor, capability.1 as c_int)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, to: *mut MemoryV1) -> Return {
    query_gpu("nvmlDeviceGetMemoryInfo", device, |_, position, gpu| {
        let memory = memory(gpu, position)?;
        let used = memory.used_bytes + memory.reserved_bytes.unwrap_or(0);
        write_out(to, MemoryV1 { total: memory.total_bytes, free: memory.free_bytes, used })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut MemoryV2) -> Return {
    query_gpu("nvmlDeviceGetMemoryInfo_v2", device, |_, position, gpu| {
        if (*to).version != 2 << 24 | size_of::<MemoryV2>() as c_uint {
            return Some(INVALID_ARGUMENT);
        }
        let memory = memory(gpu, position)?;
        (*to).total = memory.total_bytes;
        (*to).reserved = memory.reserved_bytes.unwrap_or(0);
        (*to).free = memory.free_bytes;
        (*to).used = memory.used_bytes;
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, to: *mut Utilization) -> Return {
    query_gpu("nvmlDeviceGetUtilizationRates", device, |_, _, gpu| {
        let gpu = gpu.utilization_percent?;
        write_out(to, Utilization { gpu, memory: 0 })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    _sensor: c_uint,
    to: *mut c_uint,
) -> Return {
    query_gpu("nvmlDeviceGetTemperature", device, |_, _, gpu| write_out(to, gpu.temperature_c?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetPowerUsage", device, |_, _, gpu| write_out(to, gpu.power_mw?.0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetEnforcedPowerLimit", device, |_, _, gpu| write_out(to, gpu.power_mw?.1))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDisplayActive(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetDisplayActive", device, |_, _, gpu| write_out(to, gpu.display?.into()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetDisplayMode(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetDisplayMode", device, |_, _, gpu| write_out(to, gpu.display?.into()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeMode(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetComputeMode", device, |_, _, gpu| {
        let mode = match gpu.compute_mode? {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        };
        write_out(to, mode)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Return {
    query_gpu("nvmlDeviceGetMigMode", device, |_, _, gpu| {
        let divided = c_uint::from(gpu.mig == Mig::Parent);
        write_out(current, divided);
        write_out(pending, divided)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetMaxMigDeviceCount", device, |_, _, _| write_out(to, MAX_SLICES))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Device,
    wanted: c_uint,
    to: *mut Device,
) -> Return {
    query_gpu("nvmlDeviceGetMigDeviceHandleByIndex", device, |description, _, parent| {
        let is_it = |gpu: &HostGpu| {
            gpu.index == parent.index
                && matches!(gpu.mig, Mig::Instance { number, .. } if number == wanted)
        };
        match description.host.gpus.iter().position(is_it) {
            Some(position) => write_out(to, (position + 1) as Device),
            None => Some(NOT_FOUND),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: Device, to: *mut c_uint) -> Return {
    query_gpu("nvmlDeviceGetGpuInstanceId", device, |_, _, gpu| {
        let Mig::Instance { gpu_instance, .. } = gpu.mig else {
            return None;
        };
        write_out(to, gpu_instance?)
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
    query_gpu(function, device, |_, position, gpu| {
        let described = gpu.processes.iter().filter(|one| is_wanted(one.kind));
        let mut all: Vec<(u32, u64)> =
            described.map(|one| (one.pid, one.used_bytes.unwrap_or(NOT_AVAILABLE))).collect();
        if is_wanted(ProcessKind::Compute) {
            all.extend(DeviceAllocations::own().process_usage(position));
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

fn is_compute(kind: ProcessKind) -> bool {
    kind != ProcessKind::Graphics
}

fn is_graphics(kind: ProcessKind) -> bool {
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
    nvmlDeviceGetComputeRunningProcesses_v2: is_compute,
    nvmlDeviceGetComputeRunningProcesses_v3: is_compute,
    nvmlDeviceGetGraphicsRunningProcesses_v2: is_graphics,
    nvmlDeviceGetGraphicsRunningProcesses_v3: is_graphics,
}
