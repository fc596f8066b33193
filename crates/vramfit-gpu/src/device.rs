//! One GPU or MIG slice: every property and metric, or the reason why it is unavailable.
//!
//! Properties (name, MIG mode, display) are queried with the processes, now and then; metrics (memory,
//! utilization, temperature) are cheap and queried each time.

use nvml_wrapper::enum_wrappers::device::{ComputeMode as NvmlMode, TemperatureSensor};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{NVML_DEVICE_MIG_ENABLE, nvmlMemory_t};
use vramfit_model::host::{ComputeMode, GpuMemory, HostGpu, Mig};

use crate::nvml::{UnavailableReadings, is_unknown_function, reason};

/// Where a MIG slice belongs.
#[derive(Clone, Debug)]
pub(crate) struct MigInstance {
    /// Its number on the GPU.
    pub(crate) number: u32,
    /// The GPU's total memory.
    pub(crate) parent_total_bytes: Option<u64>,
    /// The GPU's compute capability, which some drivers tell of the GPU only.
    pub(crate) capability: Option<(u32, u32)>,
}

/// Queries what does not change; see [`read_metrics`] for the rest.
pub(crate) fn read_properties(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
    slice: Option<&MigInstance>,
    unknown: &mut UnavailableReadings,
) -> HostGpu {
    let capability = device
        .cuda_compute_capability()
        .map(|cc| (cc.major.unsigned_abs(), cc.minor.unsigned_abs()));
    let parent_capability = slice.and_then(|slice| slice.capability);
    let mut gpu = HostGpu {
        index,
        uuid: unknown.ok_or_note("uuid", device.uuid()).unwrap_or_default(),
        name: unknown.ok_or_note("name", device.name()).unwrap_or_default(),
        compute_capability: match (capability, parent_capability) {
            (Err(_), Some(parent)) => Some(parent),
            (capability, _) => unknown.ok_or_note("compute capability", capability),
        },
        mig: match slice {
            Some(slice) => Mig::Instance {
                number: slice.number,
                gpu_instance: unknown.ok_or_note("GPU instance", gpu_instance(nvml, device)),
                parent_total_bytes: slice.parent_total_bytes,
            },
            None if is_mig_enabled(device, unknown) => Mig::Parent,
            None => Mig::Off,
        },
        ..HostGpu::default()
    };
    if slice.is_none() {
        // Properties of the whole GPU, which the driver does not report for a slice.
        gpu.display = unknown.ok_or_note("display", has_display(device));
        gpu.compute_mode =
            unknown.ok_or_note("compute mode", device.compute_mode()).map(|mode| match mode {
                NvmlMode::Default => ComputeMode::Default,
                NvmlMode::Prohibited => ComputeMode::Prohibited,
                NvmlMode::ExclusiveThread | NvmlMode::ExclusiveProcess => {
                    ComputeMode::ExclusiveProcess
                }
            });
    }
    gpu
}

/// Queries what changes all the time, and stores it in `gpu`.
pub(crate) fn read_metrics(
    nvml: &Nvml,
    device: &Device<'_>,
    gpu: &mut HostGpu,
    unknown: &mut UnavailableReadings,
) {
    gpu.memory = unknown.ok_or_note("memory", memory(nvml, device));
    if matches!(gpu.mig, Mig::Instance { .. }) {
        // Utilization, temperature and power are those of the whole GPU.
        return;
    }
    if gpu.mig == Mig::Off {
        gpu.utilization_percent =
            unknown.ok_or_note("utilization", device.utilization_rates()).map(|rates| rates.gpu);
    }
    gpu.temperature_c =
        unknown.ok_or_note("temperature", device.temperature(TemperatureSensor::Gpu));
    let power = device.power_usage().and_then(|drawn| Ok((drawn, device.enforced_power_limit()?)));
    gpu.power_mw = unknown.ok_or_note("power", power);
}

/// Returns whether the GPU is partitioned into MIG slices.
fn is_mig_enabled(device: &Device<'_>, unknown: &mut UnavailableReadings) -> bool {
    match device.mig_mode() {
        Ok(mode) => mode.current == NVML_DEVICE_MIG_ENABLE,
        Err(NvmlError::NotSupported) => false,
        Err(error) if is_unknown_function(&error) => false,
        Err(error) => {
            unknown.note("MIG mode", reason(&error));
            false
        }
    }
}

/// Returns whether a display is active on the GPU, whether or not a screen is connected.
fn has_display(device: &Device<'_>) -> Result<bool, NvmlError> {
    match device.is_display_active() {
        Err(NvmlError::NotSupported) => device.is_display_connected(),
        known => known,
    }
}

/// Queries memory with version 2 of the function, which reports reserved memory separately, else with
/// version 1.
fn memory(nvml: &Nvml, device: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok(GpuMemory {
            total_bytes: info.total,
            reserved_bytes: Some(info.reserved),
            used_bytes: info.used,
            free_bytes: info.free,
        }),
        Err(error) if is_unknown_function(&error) => memory_v1(nvml, device),
        Err(error) => Err(error),
    }
}

fn memory_v1(nvml: &Nvml, device: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    let query = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the handle is that of an open session, and the struct is the function's own.
    nvml_try(unsafe { query(device.handle(), &mut info) })?;
    Ok(GpuMemory {
        total_bytes: info.total,
        reserved_bytes: None,
        used_bytes: info.used,
        free_bytes: info.free,
    })
}

fn gpu_instance(nvml: &Nvml, device: &Device<'_>) -> Result<u32, NvmlError> {
    let query = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle is that of an open session, and `id` outlives the call.
    nvml_try(unsafe { query(device.handle(), &mut id) })?;
    Ok(id)
}
