//! One card or slice: every figure, or why it is not known.
//!
//! What a card *is* (name, division, display) is asked with the processes, now and then; what
//! changes every moment (memory, use, heat) is cheap and asked each time.

use nvml_wrapper::enum_wrappers::device::{ComputeMode as NvmlMode, TemperatureSensor};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{NVML_DEVICE_MIG_ENABLE, nvmlMemory_t};
use vramfit_core::machine::{Card, ComputeMode, Memory, Mig};

use crate::nvml::{Unknown, is_unknown_function, reason};

/// A slice's place on its card.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// Its number on the card.
    pub(crate) number: u32,
    /// The card's total memory.
    pub(crate) parent_total_bytes: Option<u64>,
    /// The card's compute capability, which some drivers tell of the card only.
    pub(crate) capability: Option<(u32, u32)>,
}

/// Asks for what a card is. Figures that change every moment are left to [`measure`].
pub(crate) fn identify(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
    slice: Option<&Slice>,
    unknown: &mut Unknown,
) -> Card {
    let capability = device
        .cuda_compute_capability()
        .map(|cc| (cc.major.unsigned_abs(), cc.minor.unsigned_abs()));
    let parent_capability = slice.and_then(|slice| slice.capability);
    let mut card = Card {
        index,
        uuid: unknown.note("uuid", device.uuid()).unwrap_or_default(),
        name: unknown.note("name", device.name()).unwrap_or_default(),
        compute_capability: match (capability, parent_capability) {
            (Err(_), Some(parent)) => Some(parent),
            (capability, _) => unknown.note("compute capability", capability),
        },
        mig: match slice {
            Some(slice) => Mig::Slice {
                number: slice.number,
                gpu_instance: unknown.note("GPU instance", gpu_instance(nvml, device)),
                parent_total_bytes: slice.parent_total_bytes,
            },
            None if is_divided(device, unknown) => Mig::Parent,
            None => Mig::Off,
        },
        ..Card::default()
    };
    if slice.is_none() {
        // Properties of the whole card, which the driver refuses to tell of a slice.
        card.display = unknown.note("display", shows_display(device));
        card.compute_mode = unknown
            .note("compute mode", device.compute_mode())
            .map(|mode| match mode {
                NvmlMode::Default => ComputeMode::Default,
                NvmlMode::Prohibited => ComputeMode::Prohibited,
                NvmlMode::ExclusiveThread | NvmlMode::ExclusiveProcess => {
                    ComputeMode::ExclusiveProcess
                }
            });
    }
    card
}

/// Asks for the figures that change every moment and writes them into `card`.
pub(crate) fn measure(nvml: &Nvml, device: &Device<'_>, card: &mut Card, unknown: &mut Unknown) {
    card.memory = unknown.note("memory", memory(nvml, device));
    if matches!(card.mig, Mig::Slice { .. }) {
        // The driver counts use, heat and power of whole cards.
        return;
    }
    if card.mig == Mig::Off {
        card.utilization_percent = unknown
            .note("utilisation", device.utilization_rates())
            .map(|rates| rates.gpu);
    }
    card.temperature_c = unknown.note("temperature", device.temperature(TemperatureSensor::Gpu));
    let power = device
        .power_usage()
        .and_then(|drawn| Ok((drawn, device.enforced_power_limit()?)));
    card.power_mw = unknown.note("power", power);
}

/// Says whether the card is divided; one that cannot be is not.
fn is_divided(device: &Device<'_>, unknown: &mut Unknown) -> bool {
    match device.mig_mode() {
        Ok(mode) => mode.current == NVML_DEVICE_MIG_ENABLE,
        Err(NvmlError::NotSupported) => false,
        Err(error) if is_unknown_function(&error) => false,
        Err(error) => {
            unknown.because("division", reason(&error));
            false
        }
    }
}

/// Says whether a display runs on the card: one is set up, whether or not a screen is plugged in.
fn shows_display(device: &Device<'_>) -> Result<bool, NvmlError> {
    match device.is_display_active() {
        Err(NvmlError::NotSupported) => device.is_display_connected(),
        known => known,
    }
}

/// Asks for memory in the newer form, which tells the reserve apart, else in the older one.
fn memory(nvml: &Nvml, device: &Device<'_>) -> Result<Memory, NvmlError> {
    match device.memory_info() {
        Ok(info) => Ok(Memory {
            total_bytes: info.total,
            reserved_bytes: Some(info.reserved),
            used_bytes: info.used,
            free_bytes: info.free,
        }),
        Err(error) if is_unknown_function(&error) => older_memory(nvml, device),
        Err(error) => Err(error),
    }
}

fn older_memory(nvml: &Nvml, device: &Device<'_>) -> Result<Memory, NvmlError> {
    let ask = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut info = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle is that of an open session, and the struct is the function's own.
    nvml_try(unsafe { ask(device.handle(), &mut info) })?;
    Ok(Memory {
        total_bytes: info.total,
        reserved_bytes: None,
        used_bytes: info.used,
        free_bytes: info.free,
    })
}

fn gpu_instance(nvml: &Nvml, device: &Device<'_>) -> Result<u32, NvmlError> {
    let ask = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the handle is that of an open session, and `id` outlives the call.
    nvml_try(unsafe { ask(device.handle(), &mut id) })?;
    Ok(id)
}
