//! Allocates through the CUDA driver: exactly the requested bytes, without JAX.

use vramfit_analysis::{Error, Result};
use vramfit_gpu::{CudaDevice, DeviceContext, Driver, DriverUnavailable, Sampler};
use vramfit_model::host::HostGpu;

use super::backend::{Backend, MemoryStatus, OtherProcess, Verification};

const NO_DEVICE_HINT: &str =
    "to use a virtual GPU instead: `vramfit dryrun --gpu t4 -- vramfit hold 8GiB --backend jax`";

/// Opens the driver and creates a context on a GPU, given by index or UUID.
///
/// # Errors
/// `no-driver` if the driver is unavailable or the GPU cannot be used; `invalid-argument` if there is no
/// such GPU.
pub(super) fn start(gpu: &str) -> Result<Box<dyn Backend>> {
    let driver = Driver::open().map_err(unavailable_error)?;
    let devices = driver.devices()?;
    let device = find_device(&devices, gpu)?.clone();
    let memory = driver.create_context(device.index)?;
    let free = memory.memory_info()?;
    Ok(Box::new(DriverBackend {
        status: MemoryStatus {
            gpu: device.index,
            gpu_name: device.name,
            source: "the GPU",
            total_bytes: Some(free.total_bytes),
            free_bytes: free.free_bytes,
        },
        uuid: device.uuid,
        memory,
    }))
}

/// Checks that there is a driver, without using GPU memory.
///
/// # Errors
/// `no-driver`.
pub(super) fn ensure_available() -> Result<()> {
    Sampler::open().map(drop).map_err(unavailable_error)
}

fn unavailable_error(unavailable: DriverUnavailable) -> Error {
    let error = Error::from(unavailable);
    let hint = error.hint_text().unwrap_or_default().to_owned();
    error.hint(format!("{hint}; {NO_DEVICE_HINT}"))
}

/// Finds a device by index or UUID, which may be abbreviated.
fn find_device<'a>(devices: &'a [CudaDevice], gpu: &str) -> Result<&'a CudaDevice> {
    let not_found = |message: String| {
        let known: Vec<String> = devices
            .iter()
            .map(|device| format!("{} ({}, GPU-{})", device.index, device.name, device.uuid))
            .collect();
        Error::invalid_argument(message).hint(format!("available: {}", known.join(", ")))
    };
    if let Ok(index) = gpu.parse::<u32>() {
        let found = devices.iter().find(|device| device.index == index);
        return found.ok_or_else(|| not_found(format!("there is no GPU {index}")));
    }
    let bare = gpu.strip_prefix("GPU-").or_else(|| gpu.strip_prefix("MIG-")).unwrap_or(gpu);
    let mut found = devices.iter().filter(|device| device.uuid.starts_with(bare));
    match (found.next(), found.next()) {
        (Some(device), None) if !bare.is_empty() => Ok(device),
        (Some(_), Some(_)) => Err(not_found(format!("the UUID `{gpu}` matches several GPUs"))),
        _ => Err(not_found(format!("no GPU has the UUID `{gpu}`"))),
    }
}

#[derive(Debug)]
struct DriverBackend {
    status: MemoryStatus,
    uuid: String,
    memory: DeviceContext,
}

impl Backend for DriverBackend {
    fn status(&self) -> &MemoryStatus {
        &self.status
    }

    fn other_processes(&self) -> Vec<OtherProcess> {
        // Without NVML the error lists no processes.
        let host = vramfit_gpu::query_host().unwrap_or_default();
        let is_this_gpu = |gpu: &&HostGpu| {
            let uuid = gpu.uuid.split_once('-').map(|(_, bare)| bare);
            gpu.is_usable() && uuid == Some(&self.uuid)
        };
        let gpu = host.gpus.iter().find(is_this_gpu);
        let processes = gpu.map(|gpu| gpu.processes.clone()).unwrap_or_default();
        processes
            .into_iter()
            .filter(|process| process.pid != std::process::id())
            .map(|process| OtherProcess {
                pid: process.pid,
                used_bytes: process.used_bytes,
                command: process.command,
                user: process.user,
                container: process.container,
            })
            .collect()
    }

    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        self.memory.allocate(bytes)
    }

    fn free_bytes(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.memory.memory_info()?.free_bytes))
    }

    fn verify(&mut self) -> Result<Verification> {
        let mismatch = self.memory.verify()?;
        let free = self.memory.memory_info()?.free_bytes;
        Ok(Verification {
            allocated_bytes: self.memory.allocated_bytes(),
            counted_bytes: self.status.free_bytes.saturating_sub(free),
            read_back: Some(mismatch.is_none()),
            note: mismatch.map(|mismatch| {
                format!(
                    "read {1:#010x} at byte {0}, where {2:#010x} was written",
                    mismatch.offset_bytes, mismatch.read, mismatch.written
                )
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str) -> CudaDevice {
        CudaDevice { index, uuid: uuid.to_owned(), name: "Tesla T4".to_owned(), total_bytes: 1 }
    }

    #[test]
    fn devices_are_found_by_index_and_uuid() {
        let gpus = [gpu(0, "0a1b-22"), gpu(1, "0a1c-33")];
        let index = |gpu: &str| find_device(&gpus, gpu).map(|gpu| gpu.index).ok();
        assert_eq!(index("1"), Some(1));
        assert_eq!(index("GPU-0a1c-33"), Some(1));
        assert_eq!(index("MIG-0a1b"), Some(0));
        assert_eq!(index("0a1c"), Some(1));
        for (gpu, expected) in [
            ("2", "there is no GPU 2"),
            ("GPU-0a", "the UUID `GPU-0a` matches several GPUs"),
            ("GPU-ff", "no GPU has the UUID `GPU-ff`"),
            ("GPU-", "the UUID `GPU-` matches several GPUs"),
        ] {
            let error = find_device(&gpus, gpu).expect_err(gpu);
            assert_eq!(error.message(), expected);
            let hint = error.hint_text().expect("the GPUs there are");
            assert!(hint.contains("1 (Tesla T4, GPU-0a1c-33)"), "{hint}");
        }
    }
}
