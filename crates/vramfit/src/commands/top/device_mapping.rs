//! Maps the devices of a process to the GPUs of the driver.
//!
//! A process numbers its visible devices from 0, in CUDA's order. The driver numbers GPUs in the order of the
//! bus.

use vramfit_model::host::HostGpu;

use super::sample::PublishedStats;

/// The GPU that a device is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceLocation {
    /// The GPU at this index of the list.
    Gpu(usize),
    /// A virtual GPU.
    Virtual,
    Unknown,
}

/// Returns the location of each device of a process.
pub(super) fn map_devices(stats: &PublishedStats, gpus: &[&HostGpu]) -> Vec<DeviceLocation> {
    let devices = &stats.header.devices;
    if stats.header.virtual_gpu.is_some() {
        return vec![DeviceLocation::Virtual; devices.len()];
    }
    let usable: Vec<usize> = (0..gpus.len()).filter(|&at| gpus[at].is_usable()).collect();
    let visible = stats.header.client_settings.visible_devices.as_deref();
    if let Some(named) = visible.and_then(|list| parse_uuids(list, gpus)) {
        return (0..devices.len())
            .map(|device| {
                named.get(device).map_or(DeviceLocation::Unknown, |&at| DeviceLocation::Gpu(at))
            })
            .collect();
    }
    // The driver knows on which GPUs the process is; when it is on as many as it has devices, it
    // uses all of them.
    let holds = |at: &usize| {
        let mut processes = gpus[*at].processes.iter();
        stats.same_namespace && processes.any(|process| process.pid == stats.header.pid)
    };
    let held: Vec<usize> = usable.iter().copied().filter(holds).collect();
    let list: Vec<usize> =
        if held.len() == devices.len() { held } else { parse_indices(visible, &usable, gpus) };
    let place = |device: &vramfit_model::published::PublishedDevice| {
        let local = usize::try_from(device.local_hardware_id).ok();
        local.and_then(|local| list.get(local))
    };
    devices
        .iter()
        .map(|device| place(device).map_or(DeviceLocation::Unknown, |&at| DeviceLocation::Gpu(at)))
        .collect()
}

/// Parses a list of UUIDs, which may be abbreviated; `None` for a list of indices.
fn parse_uuids(list: &str, gpus: &[&HostGpu]) -> Option<Vec<usize>> {
    let named = |entry: &str| {
        let is_name = entry.starts_with("GPU-") || entry.starts_with("MIG-");
        is_name.then(|| gpus.iter().position(|gpu| gpu.uuid.starts_with(entry)))?
    };
    list.split(',').map(|entry| named(entry.trim())).collect()
}

/// Assumes that the driver's indices are CUDA's, as if all GPUs are alike, or with
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
fn parse_indices(visible: Option<&str>, usable: &[usize], gpus: &[&HostGpu]) -> Vec<usize> {
    let Some(list) = visible else {
        return usable.to_vec();
    };
    let numbers = list.split(',').map_while(|entry| entry.trim().parse::<u32>().ok());
    numbers
        .filter_map(|number| usable.iter().copied().find(|&at| gpus[at].index == number))
        .collect()
}

#[cfg(test)]
mod tests {
    use vramfit_model::host::Process;
    use vramfit_model::published::{
        ClientSettings, LiveStats, Liveness, PublishedDevice, StatsHeader,
    };

    use super::DeviceLocation::{Gpu, Unknown, Virtual};
    use super::*;

    fn gpu(index: u32, uuid: &str, pids: &[u32]) -> HostGpu {
        let process = |&pid: &u32| Process { pid, ..Process::default() };
        HostGpu {
            index,
            uuid: uuid.to_owned(),
            processes: pids.iter().map(process).collect(),
            ..HostGpu::default()
        }
    }

    fn stats(devices: i32, visible: Option<&str>) -> PublishedStats {
        let device =
            |local_hardware_id| PublishedDevice { local_hardware_id, ..PublishedDevice::default() };
        PublishedStats {
            header: StatsHeader {
                pid: 7,
                client_settings: ClientSettings {
                    visible_devices: visible.map(str::to_owned),
                    ..ClientSettings::default()
                },
                devices: (0..devices).map(device).collect(),
                ..StatsHeader::default()
            },
            live: LiveStats::default(),
            liveness: Liveness::Fresh,
            same_namespace: true,
            process: None,
        }
    }

    fn on(stats: &PublishedStats, gpus: &[HostGpu]) -> Vec<DeviceLocation> {
        map_devices(stats, &gpus.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_device_is_on_the_gpu_that_the_driver_sees_the_process_on() {
        let gpus = [gpu(0, "GPU-a", &[1]), gpu(1, "GPU-b", &[7])];
        assert_eq!(on(&stats(1, None), &gpus), [Gpu(1)]);
    }

    #[test]
    fn lasting_names_decide_where_they_are_given() {
        let gpus = [gpu(0, "GPU-aa", &[7]), gpu(1, "GPU-bb", &[])];
        assert_eq!(on(&stats(1, Some("GPU-b")), &gpus), [Gpu(1)]);
        assert_eq!(on(&stats(2, Some("GPU-bb,GPU-aa")), &gpus), [Gpu(1), Gpu(0)]);
    }

    #[test]
    fn numbers_decide_where_the_driver_does_not_list_the_process() {
        let gpus = [gpu(0, "GPU-a", &[]), gpu(1, "GPU-b", &[]), gpu(2, "GPU-c", &[])];
        assert_eq!(on(&stats(2, Some("2,0")), &gpus), [Gpu(2), Gpu(0)]);
        assert_eq!(on(&stats(1, None), &gpus), [Gpu(0)]);
        assert_eq!(on(&stats(1, Some("5")), &gpus), [Unknown]);
    }

    #[test]
    fn a_virtual_device_is_on_no_gpu_of_the_driver() {
        let mut stats = stats(2, None);
        stats.header.virtual_gpu = Some("t4".to_owned());
        assert_eq!(on(&stats, &[gpu(0, "GPU-a", &[7])]), [Virtual; 2]);
    }
}
