//! On which of the driver's GPUs does a device of a process lie?
//!
//! A process counts its devices from 0, in the order of CUDA, of those that it may see. The driver
//! counts GPUs, in the order of the bus.

use vramfit_core::host::HostGpu;

use super::moment::Page;

/// Where a device is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the GPU at this position of the list.
    HostGpu(usize),
    /// On a GPU of its own: it is a virtual one.
    Virtual,
    /// It cannot be told.
    Unknown,
}

/// Returns the place of each device of a page.
pub(super) fn places(page: &Page, gpus: &[&HostGpu]) -> Vec<Place> {
    let devices = &page.header.devices;
    if page.header.virtual_gpu.is_some() {
        return vec![Place::Virtual; devices.len()];
    }
    let usable: Vec<usize> = (0..gpus.len()).filter(|&at| gpus[at].is_usable()).collect();
    let visible = page.header.asked.visible_devices.as_deref();
    if let Some(named) = visible.and_then(|list| by_uuid(list, gpus)) {
        return (0..devices.len())
            .map(|device| {
                named
                    .get(device)
                    .map_or(Place::Unknown, |&at| Place::HostGpu(at))
            })
            .collect();
    }
    // The driver knows on which GPUs the process is; when it is on as many as it has devices, it
    // uses all of them.
    let holds = |at: &usize| {
        let mut processes = gpus[*at].processes.iter();
        page.same_namespace && processes.any(|process| process.pid == page.header.pid)
    };
    let held: Vec<usize> = usable.iter().copied().filter(holds).collect();
    let list: Vec<usize> = if held.len() == devices.len() {
        held
    } else {
        by_number(visible, &usable, gpus)
    };
    let place = |device: &vramfit_core::published::Device| {
        let local = usize::try_from(device.local_hardware_id).ok();
        local.and_then(|local| list.get(local))
    };
    devices
        .iter()
        .map(|device| place(device).map_or(Place::Unknown, |&at| Place::HostGpu(at)))
        .collect()
}

/// Reads a list of lasting names, which may be shortened; `None` if it is a list of numbers.
fn by_uuid(list: &str, gpus: &[&HostGpu]) -> Option<Vec<usize>> {
    let named = |entry: &str| {
        let is_name = entry.starts_with("GPU-") || entry.starts_with("MIG-");
        is_name.then(|| gpus.iter().position(|gpu| gpu.uuid.starts_with(entry)))?
    };
    list.split(',').map(|entry| named(entry.trim())).collect()
}

/// Takes the driver's numbers for CUDA's, which they are when all GPUs are alike, or when
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
fn by_number(visible: Option<&str>, usable: &[usize], gpus: &[&HostGpu]) -> Vec<usize> {
    let Some(list) = visible else {
        return usable.to_vec();
    };
    let numbers = list
        .split(',')
        .map_while(|entry| entry.trim().parse::<u32>().ok());
    numbers
        .filter_map(|number| usable.iter().copied().find(|&at| gpus[at].index == number))
        .collect()
}

#[cfg(test)]
mod tests {
    use vramfit_core::host::Process;
    use vramfit_core::published::{Asked, Device, Header, Live, Liveness};

    use super::*;

    fn gpu(index: u32, uuid: &str, pids: &[u32]) -> HostGpu {
        let process = |&pid: &u32| Process {
            pid,
            ..Process::default()
        };
        HostGpu {
            index,
            uuid: uuid.to_owned(),
            processes: pids.iter().map(process).collect(),
            ..HostGpu::default()
        }
    }

    fn page(devices: i32, visible: Option<&str>) -> Page {
        let device = |local_hardware_id| Device {
            local_hardware_id,
            ..Device::default()
        };
        Page {
            header: Header {
                pid: 7,
                asked: Asked {
                    visible_devices: visible.map(str::to_owned),
                    ..Asked::default()
                },
                devices: (0..devices).map(device).collect(),
                ..Header::default()
            },
            live: Live::default(),
            liveness: Liveness::Fresh,
            same_namespace: true,
            process: None,
        }
    }

    fn on(page: &Page, gpus: &[HostGpu]) -> Vec<Place> {
        places(page, &gpus.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_device_is_on_the_gpu_that_the_driver_sees_the_process_on() {
        let gpus = [gpu(0, "GPU-a", &[1]), gpu(1, "GPU-b", &[7])];
        assert_eq!(on(&page(1, None), &gpus), [Place::HostGpu(1)]);
    }

    #[test]
    fn lasting_names_decide_where_they_are_given() {
        let gpus = [gpu(0, "GPU-aa", &[7]), gpu(1, "GPU-bb", &[])];
        assert_eq!(on(&page(1, Some("GPU-b")), &gpus), [Place::HostGpu(1)]);
        assert_eq!(
            on(&page(2, Some("GPU-bb,GPU-aa")), &gpus),
            [Place::HostGpu(1), Place::HostGpu(0)]
        );
    }

    #[test]
    fn numbers_decide_where_the_driver_does_not_list_the_process() {
        let gpus = [
            gpu(0, "GPU-a", &[]),
            gpu(1, "GPU-b", &[]),
            gpu(2, "GPU-c", &[]),
        ];
        assert_eq!(
            on(&page(2, Some("2,0")), &gpus),
            [Place::HostGpu(2), Place::HostGpu(0)]
        );
        assert_eq!(on(&page(1, None), &gpus), [Place::HostGpu(0)]);
        assert_eq!(on(&page(1, Some("5")), &gpus), [Place::Unknown]);
    }

    #[test]
    fn a_virtual_device_is_on_no_gpu_of_the_driver() {
        let mut page = page(2, None);
        page.header.virtual_gpu = Some("t4".to_owned());
        assert_eq!(on(&page, &[gpu(0, "GPU-a", &[7])]), [Place::Virtual; 2]);
    }
}
