//! The input of the rules: plain values.

use std::collections::BTreeMap;

use crate::gpu::Gpu;
use crate::host::{GpuMemory, Host, HostGpu};
use crate::settings::{LateChange, Version};

/// The environment of a program that starts or runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LintInput {
    /// The environment variables.
    pub environment: BTreeMap<String, String>,
    /// The installed JAX release; if `None`, the rules assume the latest they know.
    pub jax: Option<Version>,
    /// The GPUs that the driver reports; none if they are unknown.
    pub host: Host,
    /// Changes that the running program made to its environment after JAX began to read it, in order.
    /// `environment` is what JAX has read, without them.
    pub late: Vec<LateChange>,
    /// Packages installed next to JAX; `None` if unknown.
    pub packages: Option<Packages>,
}

/// Installed packages that affect GPU memory, with their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    /// TensorFlow with GPU support, as installed by default.
    pub tensorflow: Option<String>,
    /// TensorFlow without GPU support.
    pub tensorflow_cpu: Option<String>,
    /// PyTorch.
    pub torch: Option<String>,
    /// Whether JAX has a CUDA plugin.
    pub cuda_plugin: bool,
}

impl Host {
    /// Returns a host with `count` idle GPUs of that kind.
    pub fn with_idle_gpus(gpu: &Gpu, count: u32) -> Host {
        Host::with_virtual_gpus(&gpu.description, count, gpu.total_memory_bytes, 0)
    }

    /// Returns a host with `count` GPUs of which the driver reports this name and memory.
    pub(crate) fn with_virtual_gpus(
        name: &str,
        count: u32,
        total_bytes: u64,
        used_bytes: u64,
    ) -> Host {
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
