//! What the driver says of the GPUs in this machine, at one moment.
//!
//! Plain values: `vramfit-gpu` fills them in from a real driver, a recording or a test does so too, and
//! the settings, the doctor and `top` think about them. What cannot be known is `None`; where the
//! driver said why, the reason is in [`HostGpu::unknown`].

use serde::{Deserialize, Serialize};
use vramfit_base::text::{cut_end, without_folder};

use crate::bytes::Bytes;
use crate::gpu::Gpu;

/// The GPUs of a machine and who uses them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Version of the driver, such as `580.82.07`.
    pub driver: Option<String>,
    /// The newest version of CUDA that the driver supports, such as `13.0`.
    pub cuda: Option<String>,
    /// The GPUs, in the order of the driver, which is the order of `nvidia-smi`. The slices of a
    /// divided GPU follow it.
    pub gpus: Vec<HostGpu>,
    /// What could not be learnt of the machine, each with the driver's reason.
    pub unknown: Vec<String>,
}

/// One GPU, or one MIG slice of a GPU: what a process can be given as a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostGpu {
    /// The GPU's number in the driver's order; a slice has its parent's.
    pub index: u32,
    /// The driver's lasting name for it: `GPU-…`, or `MIG-…` for a slice. Empty when the driver
    /// does not tell it, which happens with a GPU that is lost.
    pub uuid: String,
    /// What it is sold as; empty when the driver does not tell it.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Its memory; a slice has its own.
    pub memory: Option<GpuMemory>,
    /// Whether the GPU is divided, and what of it this is.
    pub mig: Mig,
    /// Whether a display runs on it. That takes memory, also where no screen is plugged in.
    pub display: Option<bool>,
    /// How processes may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Part of the last sampling period in which a kernel ran, in percent.
    pub utilization_percent: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power drawn and the limit, in milliwatts.
    pub power_mw: Option<(u32, u32)>,
    /// Processes that hold memory on it, largest first. Those of a divided GPU are at its slices.
    pub processes: Vec<Process>,
    /// What could not be learnt, each with the driver's reason.
    pub unknown: Vec<String>,
}

impl Host {
    /// Returns a host with `count` idle GPUs of that kind.
    pub fn with_idle_gpus(gpu: &Gpu, count: u32) -> Host {
        Host::with_virtual_gpus(&gpu.description, count, gpu.total_memory_bytes, 0)
    }

    /// Returns a host with `count` GPUs of which the driver reports this name and memory.
    pub fn with_virtual_gpus(name: &str, count: u32, total_bytes: u64, used_bytes: u64) -> Host {
        let gpu = |index| HostGpu {
            index,
            name: name.to_owned(),
            memory: Some(GpuMemory {
                total_bytes,
                reserved_bytes: Some(0),
                used_bytes,
                free_bytes: total_bytes.saturating_sub(used_bytes),
            }),
            ..HostGpu::default()
        };
        Host { gpus: (0..count).map(gpu).collect(), ..Host::default() }
    }
}

impl HostGpu {
    /// Returns `true` if a program can be given this GPU: a divided one is used by its slices.
    pub fn is_usable(&self) -> bool {
        self.mig != Mig::Parent
    }

    /// Returns whom its compute mode keeps from it, if it keeps anybody.
    pub fn closed_by(&self) -> Option<Closed<'_>> {
        // It is the one process that the mode allows, and others compute through it.
        let is_mps = |process: &Process| {
            process.command.as_deref().is_some_and(|command| command.contains("nvidia-cuda-mps"))
        };
        match self.compute_mode? {
            ComputeMode::Default => None,
            ComputeMode::Prohibited => Some(Closed::ToAll),
            ComputeMode::ExclusiveProcess => {
                let mut computing =
                    self.processes.iter().filter(|process| process.kind != ProcessKind::Graphics);
                let first = computing.next().filter(|_| !self.processes.iter().any(is_mps))?;
                Some(Closed::HeldBy(first))
            }
        }
    }

    /// Describes the processes that hold most memory, as far as the driver reports them.
    pub fn describe_processes(&self) -> String {
        const MAX_LISTED: usize = 3;
        let mut processes: Vec<&Process> = self.processes.iter().collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.used_bytes));
        if processes.is_empty() {
            return "processes that the driver does not identify here".to_owned();
        }
        let listed = processes.iter().take(MAX_LISTED).map(|process| process.describe());
        let mut names: Vec<String> = listed.collect();
        if processes.len() > MAX_LISTED {
            names.push(format!("{} more", processes.len() - MAX_LISTED));
        }
        names.join(", ")
    }

    /// Takes processes off it, as if they did not run.
    pub fn remove_processes(&mut self, is_removed: impl Fn(&Process) -> bool) {
        let processes = std::mem::take(&mut self.processes);
        let (removed, kept): (Vec<_>, Vec<_>) = processes.into_iter().partition(is_removed);
        self.processes = kept;
        let bytes: u64 = removed.iter().filter_map(|process| process.used_bytes).sum();
        if let Some(memory) = &mut self.memory {
            memory.used_bytes = memory.used_bytes.saturating_sub(bytes);
            memory.free_bytes = memory.free_bytes.saturating_add(bytes).min(memory.total_bytes);
        }
    }
}

/// Whom the compute mode of a GPU keeps from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Closed<'a> {
    /// Everybody.
    ToAll,
    /// All but this process, which holds it.
    HeldBy(&'a Process),
}

/// A GPU's memory in bytes, as the driver counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuMemory {
    /// All of it.
    pub total_bytes: u64,
    /// What the driver and the firmware keep for themselves. Drivers before 510 do not tell it
    /// apart: then this is `None`, and `used_bytes` includes it.
    pub reserved_bytes: Option<u64>,
    /// What processes hold, contexts included.
    pub used_bytes: u64,
    /// What can still be had.
    pub free_bytes: u64,
}

/// How a GPU is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mig {
    /// Not divided.
    #[default]
    Off,
    /// A GPU that is divided: its slices follow it, and no program can use it as a whole.
    Parent,
    /// A slice of the GPU with the same index.
    Instance {
        /// Its number on the GPU, as `nvidia-smi -L` counts.
        number: u32,
        /// The driver's number of the GPU instance.
        gpu_instance: Option<u32>,
        /// Total memory of the GPU it is a part of.
        parent_total_bytes: Option<u64>,
    },
}

/// Who may make a context on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One process.
    ExclusiveProcess,
    /// Nobody.
    Prohibited,
}

/// A process that holds memory of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number as the driver tells it. In a container that may be the host's number, which
    /// means nothing there; `command` is `None` then.
    pub pid: u32,
    /// What it holds, context included; the driver does not tell it everywhere (containers, WSL).
    pub used_bytes: Option<u64>,
    /// Whether it draws, computes, or both.
    pub kind: ProcessKind,
    /// Its command line, joined by spaces, without control characters.
    pub command: Option<String>,
    /// The user it runs as.
    pub user: Option<String>,
    /// The container or job it runs in, such as `docker 3f4e5a6b7c8d`, as far as its control group
    /// tells.
    pub container: Option<String>,
}

impl Process {
    /// Describes it in a few words: `` `python train.py` (4711, 20.0 GiB) ``.
    pub fn describe(&self) -> String {
        const MAX_COMMAND_CHARS: usize = 40;
        let pid = self.pid;
        let command = self.command.as_deref().unwrap_or("a process");
        let command = cut_end(without_folder(command), MAX_COMMAND_CHARS);
        let kind = match self.kind {
            ProcessKind::Compute => "",
            ProcessKind::Graphics | ProcessKind::Both => ", display",
        };
        match self.used_bytes {
            Some(bytes) => format!("`{command}` ({pid}{kind}, {})", Bytes(bytes)),
            None => format!("`{command}` ({pid}{kind})"),
        }
    }
}

/// What a process uses a GPU for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    /// Computing.
    #[default]
    Compute,
    /// Drawing, such as a desktop.
    Graphics,
    /// Both.
    Both,
}

/// What this process is confined to: container, control group, device files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostEnvironment {
    /// The container we are in, such as `docker 3f4e5a6b7c8d` or `podman`.
    pub container: Option<String>,
    /// Whether numbers of processes are counted apart from the host's.
    pub own_pid_namespace: Option<bool>,
    /// Whether this is Windows Subsystem for Linux, where the driver is that of Windows.
    pub wsl: bool,
    /// Names in `/dev` through which the driver is reached: `nvidia0`, `nvidiactl`, `dxg`.
    pub device_files: Vec<String>,
    /// `NVIDIA_VISIBLE_DEVICES`, which container runtimes read.
    pub nvidia_visible_devices: Option<String>,
    /// `CUDA_VISIBLE_DEVICES`, which CUDA reads.
    pub cuda_visible_devices: Option<String>,
    /// Host memory of our control group, the tightest one above us.
    pub host_memory: Option<HostMemoryLimit>,
    /// Host memory that the kernel could give to programs without swapping.
    pub kernel_available_bytes: Option<u64>,
}

impl HostEnvironment {
    /// Returns how much host memory a program can be given here; `None` where nothing is known of it.
    pub fn available_memory_bytes(&self) -> Option<u64> {
        let left = self.host_memory.as_ref().map(HostMemoryLimit::available_bytes);
        self.kernel_available_bytes.into_iter().chain(left).min()
    }
}

/// A limit on host memory, set by a container runtime or a job scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostMemoryLimit {
    /// The most that the group may use.
    pub limit_bytes: u64,
    /// What it uses now, caches included.
    pub used_bytes: Option<u64>,
    /// What of that are files in the page cache that nobody has used of late.
    pub reclaimable_bytes: Option<u64>,
    /// The file that the limit was read from.
    pub source: String,
}

impl HostMemoryLimit {
    /// Returns what the group may still use, with what the kernel can reclaim from its page cache.
    pub fn available_bytes(&self) -> u64 {
        let used = self.used_bytes.unwrap_or(0).saturating_sub(self.reclaimable_bytes.unwrap_or(0));
        self.limit_bytes.saturating_sub(used)
    }
}
