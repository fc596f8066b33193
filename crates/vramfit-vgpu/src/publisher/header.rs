//! The header of a statistics file: this process, its client's settings, its devices.

use vramfit_model::published::{PublishedDevice, StatsHeader};

use super::api_wrapper::ClientInfo;
use super::config::PublishConfig;
use super::{JAX_VERSION, folder};
use crate::pjrt::abi;
use crate::pjrt::abi::client::ClientAddressableDevicesArgs;
use crate::pjrt::abi::device::{
    DeviceDescriptionIdArgs, DeviceDescriptionKindArgs, DeviceGetDescriptionArgs,
    DeviceLocalHardwareIdArgs,
};
use crate::pjrt::cuda_plugin::{CudaPlugin, zeroed_struct};
use crate::pjrt::pointers;
use crate::pjrt::status::PjrtResult;

/// Long enough to distinguish one run from another.
const COMMAND_BYTES: usize = 400;

/// Returns the devices of this process, as the client lists them.
///
/// # Safety
/// `client` is a live client of `plugin`.
pub(super) unsafe fn devices(
    plugin: &CudaPlugin,
    client: *mut abi::Client,
) -> PjrtResult<Vec<*mut abi::Device>> {
    let mut args: ClientAddressableDevicesArgs = zeroed_struct();
    args.client = client;
    plugin.call("PJRT_Client_AddressableDevices", &mut args)?;
    let devices = pointers::list(args.addressable_devices, args.num_addressable_devices);
    Ok(devices.to_vec())
}

/// Returns the header of a statistics file.
///
/// # Safety
/// `devices` are live devices of `plugin`.
pub(super) unsafe fn header(
    plugin: &CudaPlugin,
    devices: &[*mut abi::Device],
    client_info: ClientInfo,
    client: u32,
    config: &PublishConfig,
) -> StatsHeader {
    let pid = std::process::id();
    let total = client_info.virtual_gpu.map(|virtual_gpu| virtual_gpu.total_bytes);
    let head = plugin.header();
    let mut settings = client_info.settings;
    settings.policy.clone_from(&config.policy);
    let jax_version = std::env::var("VRAMFIT_JAX_VERSION").ok();
    StatsHeader {
        pid,
        started_ticks: crate::process::start_ticks(pid).unwrap_or(0),
        client,
        pid_namespace: folder::pid_namespace(),
        boot_id: folder::boot_id(),
        command: command(pid),
        jax: JAX_VERSION.get().cloned().or(jax_version),
        plugin_api: format!("{}.{}", head.major, head.minor),
        interval_ms: config.interval.as_millis() as u32,
        client_settings: settings,
        virtual_gpu: client_info.virtual_gpu.map(|virtual_gpu| virtual_gpu.gpu.clone()),
        devices: devices.iter().map(|&device| describe(plugin, device, total)).collect(),
    }
}

/// Returns the description of a device. What cannot be read stays empty; the device is published anyway.
unsafe fn describe(
    plugin: &CudaPlugin,
    device: *mut abi::Device,
    total: Option<u64>,
) -> PublishedDevice {
    let mut hardware: DeviceLocalHardwareIdArgs = zeroed_struct();
    hardware.device = device;
    let local = plugin.call("PJRT_Device_LocalHardwareId", &mut hardware);
    let mut found = PublishedDevice {
        id: -1,
        local_hardware_id: local.map_or(-1, |()| hardware.local_hardware_id),
        kind: String::new(),
        virtual_total_bytes: total,
    };
    let mut description: DeviceGetDescriptionArgs = zeroed_struct();
    description.device = device;
    if plugin.call("PJRT_Device_GetDescription", &mut description).is_err() {
        return found;
    }
    let mut id: DeviceDescriptionIdArgs = zeroed_struct();
    id.device_description = description.device_description;
    if plugin.call("PJRT_DeviceDescription_Id", &mut id).is_ok() {
        found.id = id.id;
    }
    let mut kind: DeviceDescriptionKindArgs = zeroed_struct();
    kind.device_description = description.device_description;
    if plugin.call("PJRT_DeviceDescription_Kind", &mut kind).is_ok() {
        found.kind = pointers::text(kind.device_kind, kind.device_kind_size);
    }
    found
}

/// Returns the command line of this process, cut where it is long.
fn command(pid: u32) -> String {
    let mut text = crate::process::command_line(pid).join(" ");
    if text.len() > COMMAND_BYTES {
        let end = (0..=COMMAND_BYTES).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}
