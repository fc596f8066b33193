//! All that the rules are allowed to know: plain values, gathered by whoever asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;
use crate::host::{GpuMemory, Host, HostGpu};
use crate::settings::Version;

/// What a program is started with, or runs with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// The environment variables.
    pub environment: BTreeMap<String, String>,
    /// The installed release of JAX; `None`: not known. The rules then assume the newest they know.
    pub jax: Option<Version>,
    /// What the driver says of the GPUs; without GPUs, nothing is known of them.
    pub machine: Host,
    /// Changes that the running program made to its environment once JAX had begun to read it, in their
    /// order. `environment` holds what JAX has read, without them.
    pub late: Vec<LateChange>,
    /// What is installed beside JAX; `None`: nobody looked.
    pub packages: Option<Packages>,
}

/// A variable that a running program sets or removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LateChange {
    /// The variable.
    pub name: String,
    /// Its value before; `None` where it was not set.
    pub old: Option<String>,
    /// Its value from then on; `None` where it is removed.
    pub new: Option<String>,
    /// The line that changes it, such as `train.py:7 (main)`; empty where that is not known.
    pub site: String,
    /// How far JAX had come.
    pub stage: Stage,
}

/// How far the JAX of a process has come.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It was not imported: every variable still counts.
    #[default]
    Before,
    /// `import jax` has read its own options.
    Imported,
    /// The plugins were found, and what JAX hands to their clients was read.
    Discovered,
    /// There is a backend: the plugin has read its own variables, too.
    Started,
}

/// Installed packages that matter to the memory of a GPU, with their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packages {
    /// TensorFlow as it is installed by default: with its code for GPUs.
    pub tensorflow: Option<String>,
    /// TensorFlow without its code for GPUs.
    pub tensorflow_cpu: Option<String>,
    /// PyTorch.
    pub torch: Option<String>,
    /// Whether JAX has a plugin for CUDA.
    pub cuda_plugin: bool,
}

impl Surroundings {
    /// Returns the machine of a program that has `count` GPUs of that kind to itself.
    pub fn machine_of(gpu: &Gpu, count: u32) -> Host {
        let gpu = |index| HostGpu {
            index,
            name: gpu.description.clone(),
            memory: Some(GpuMemory {
                total_bytes: gpu.total_memory_bytes,
                reserved_bytes: Some(0),
                used_bytes: 0,
                free_bytes: gpu.total_memory_bytes,
            }),
            ..HostGpu::default()
        };
        Host {
            gpus: (0..count).map(gpu).collect(),
            ..Host::default()
        }
    }
}
