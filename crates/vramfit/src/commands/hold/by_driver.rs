//! Holding through CUDA's driver: exactly the bytes that were asked for, and no JAX.

use vramfit_core::host::HostGpu;
use vramfit_core::{Error, ErrorKind, Result};
use vramfit_gpu::{CudaDevice, DeviceContext, Driver, DriverUnavailable, Sampler};

use super::holder::{Holder, Other, Room, Verdict};

/// Where the way without a GPU is told.
const WITHOUT_A_CARD: &str =
    "without a GPU, on a virtual one: `vramfit dryrun --gpu t4 -- vramfit hold 8GiB --backend jax`";

/// Opens the driver and makes a context on a GPU, which is given by number or UUID.
///
/// # Errors
/// `no-driver` when there is none, or the GPU cannot be used; `invalid-argument` when there is no
/// such GPU.
pub(super) fn start(gpu: &str) -> Result<Box<dyn Holder>> {
    let driver = Driver::open().map_err(absent)?;
    let devices = driver.devices()?;
    let device = find(&devices, gpu)?.clone();
    let memory = driver.create_context(device.index)?;
    let free = memory.memory_info()?;
    Ok(Box::new(ByDriver {
        room: Room {
            gpu: device.index,
            gpu_name: device.name,
            whose: "the GPU",
            total_bytes: Some(free.total_bytes),
            free_bytes: free.free_bytes,
        },
        uuid: device.uuid,
        memory,
    }))
}

/// Makes sure that there is a driver, without touching a GPU's memory.
///
/// # Errors
/// `no-driver`.
pub(super) fn check() -> Result<()> {
    Sampler::open().map(drop).map_err(absent)
}

fn absent(absence: DriverUnavailable) -> Error {
    let error = Error::from(absence);
    let cure = error.hint_text().unwrap_or_default().to_owned();
    error.hint(format!("{cure}; {WITHOUT_A_CARD}"))
}

/// Finds a GPU by its number or by its UUID, written as `nvidia-smi -L` does or in short.
fn find<'a>(gpus: &'a [CudaDevice], gpu: &str) -> Result<&'a CudaDevice> {
    let refuse = |message: String| {
        let known: Vec<String> = gpus
            .iter()
            .map(|gpu| format!("{} ({}, GPU-{})", gpu.index, gpu.name, gpu.uuid))
            .collect();
        Error::new(ErrorKind::InvalidArgument, message)
            .hint(format!("CUDA shows: {}", known.join(", ")))
    };
    if let Ok(index) = gpu.parse::<u32>() {
        let found = gpus.iter().find(|gpu| gpu.index == index);
        return found.ok_or_else(|| refuse(format!("there is no GPU {index} here")));
    }
    let bare = gpu
        .strip_prefix("GPU-")
        .or_else(|| gpu.strip_prefix("MIG-"))
        .unwrap_or(gpu);
    let mut found = gpus.iter().filter(|gpu| gpu.uuid.starts_with(bare));
    match (found.next(), found.next()) {
        (Some(gpu), None) if !bare.is_empty() => Ok(gpu),
        (Some(_), Some(_)) => Err(refuse(format!("`{gpu}` begins the UUID of several GPUs"))),
        _ => Err(refuse(format!("no GPU here has the UUID `{gpu}`"))),
    }
}

#[derive(Debug)]
struct ByDriver {
    room: Room,
    uuid: String,
    memory: DeviceContext,
}

impl Holder for ByDriver {
    fn room(&self) -> &Room {
        &self.room
    }

    fn others(&self) -> Vec<Other> {
        // Without NVML the refusal stands, only without names.
        let machine = vramfit_gpu::query_host().unwrap_or_default();
        let is_ours = |gpu: &&HostGpu| {
            let uuid = gpu.uuid.split_once('-').map(|(_, bare)| bare);
            gpu.is_usable() && uuid == Some(&self.uuid)
        };
        let gpu = machine.gpus.iter().find(is_ours);
        let processes = gpu.map(|gpu| gpu.processes.clone()).unwrap_or_default();
        processes
            .into_iter()
            .filter(|process| process.pid != std::process::id())
            .map(|process| Other {
                pid: process.pid,
                used_bytes: process.used_bytes,
                command: process.command,
                user: process.user,
                container: process.container,
            })
            .collect()
    }

    fn take(&mut self, bytes: u64) -> Result<bool> {
        self.memory.allocate(bytes)
    }

    fn free_bytes(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.memory.memory_info()?.free_bytes))
    }

    fn verify(&mut self) -> Result<Verdict> {
        let wrong = self.memory.verify()?;
        let free = self.memory.memory_info()?.free_bytes;
        Ok(Verdict {
            held_bytes: self.memory.allocated_bytes(),
            counted_bytes: self.room.free_bytes.saturating_sub(free),
            read_back: Some(wrong.is_none()),
            note: wrong.map(|wrong| {
                format!(
                    "byte {} reads as {:#010x} after {:#010x} was written",
                    wrong.offset_bytes, wrong.read, wrong.written
                )
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str) -> CudaDevice {
        CudaDevice {
            index,
            uuid: uuid.to_owned(),
            name: "Tesla T4".to_owned(),
            total_bytes: 1,
        }
    }

    #[test]
    fn gpus_are_found_by_number_and_uuid() {
        let gpus = [gpu(0, "0a1b-22"), gpu(1, "0a1c-33")];
        let index = |gpu: &str| find(&gpus, gpu).map(|gpu| gpu.index).ok();
        assert_eq!(index("1"), Some(1));
        assert_eq!(index("GPU-0a1c-33"), Some(1));
        assert_eq!(index("MIG-0a1b"), Some(0));
        assert_eq!(index("0a1c"), Some(1));
        for (gpu, expected) in [
            ("2", "there is no GPU 2 here"),
            ("GPU-0a", "`GPU-0a` begins the UUID of several GPUs"),
            ("GPU-ff", "no GPU here has the UUID `GPU-ff`"),
            ("GPU-", "`GPU-` begins the UUID of several GPUs"),
        ] {
            let error = find(&gpus, gpu).expect_err(gpu);
            assert_eq!(error.message(), expected);
            let hint = error.hint_text().expect("the GPUs there are");
            assert!(hint.contains("1 (Tesla T4, GPU-0a1c-33)"), "{hint}");
        }
    }
}
