//! What a trace begins and ends with.

use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;
use crate::run_config::RunConfig;

/// What a trace begins with: enough to build the same allocators again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The dry run that the process is part of.
    pub run: RunConfig,
    /// Version of `jax` in the traced process, such as `0.10.2`.
    pub jax: String,
    /// What the CUDA plugin says of itself (its PJRT API version).
    pub plugin: String,
    /// Number of GPUs that the process sees.
    pub devices: u32,
    /// The numbers of these GPUs in their machine, in the order of the devices. Where it is empty, device and GPU have
    /// the same number.
    pub gpus: Vec<u32>,
    /// Which host this is of those that run the program together, as the program told JAX (`jax.distributed`).
    pub host: u32,
    /// How many these are; 0 and 1 for a program on one host.
    pub hosts: u32,
    /// Number of the process; 0 where it is not known.
    pub pid: u32,
    /// `default`, `bfc`, `platform`, `address`, `cuda_async` or `vmm`, as JAX passed it.
    pub allocator: String,
    /// The share of the GPU the pool may take, as JAX read it ([`crate::settings::DEFAULT_FRACTION`] unless set).
    pub memory_fraction: f64,
    /// The share to which the pool may grow, where a text such as `0.75+` named one. Not every release and pool
    /// does anything with it.
    pub memory_cap: Option<f64>,
    /// Whether the pool is taken at the first allocation.
    pub preallocate: bool,
    /// Whether the pool is spatially partitioned (the default from JAX 0.11 on).
    pub spatial_partitioning: bool,
    /// Whether `TF_FORCE_UNIFIED_MEMORY` lets the pool be larger than the GPU.
    pub unified_memory: bool,
    /// `TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC`, 0 unless set.
    pub cuda_async_prealloc: i64,
    /// Size of the preallocated pool for collective memory, where one was asked for.
    pub collective_memory_bytes: Option<u64>,
    /// The command line, for people.
    pub command: Vec<String>,
}

impl Header {
    /// Returns the GPU that the program runs on; of several, each is one of these.
    pub fn gpu(&self) -> &Gpu {
        &self.run.gpus.gpu
    }

    /// Returns the total memory of one GPU in bytes, as the pool sees it.
    pub fn total_memory_bytes(&self) -> u64 {
        self.run.pool_total_bytes()
    }

    /// Returns the highest total that drivers report for a GPU of this kind, in bytes; the total itself where that was
    /// given.
    pub fn max_total_memory_bytes(&self) -> u64 {
        self.gpu().max_total_memory_bytes.max(self.total_memory_bytes())
    }

    /// Returns what a GPU has for this process beside the context and what others hold.
    pub fn free_bytes(&self) -> u64 {
        let beside_bytes = self.run.occupied_bytes.saturating_add(self.run.context_bytes);
        self.total_memory_bytes().saturating_sub(beside_bytes)
    }

    /// Returns the number in the machine of the GPU that a device is.
    pub fn gpu_of(&self, device: u32) -> u32 {
        self.gpus.get(device as usize).copied().unwrap_or(device)
    }

    /// Returns the number of GPUs of the machine.
    pub fn machine_gpu_count(&self) -> u32 {
        self.run.gpus.count.max(self.devices)
    }
}

/// What a trace ends with. Missing when the process died.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Footer {
    /// `bytes_in_use` of each device at the end.
    pub bytes_in_use: Vec<u64>,
    /// `peak_bytes_in_use` of each device, since its last [`super::Event::ClearPeak`].
    pub peak_bytes_in_use: Vec<u64>,
    /// `pool_bytes` of each device, 0 where the allocator has no pool.
    pub pool_bytes: Vec<u64>,
    /// Successful allocations of each device.
    pub num_allocs: Vec<u64>,
    /// Executions so far: the number of [`super::Event::Begin`].
    pub executions: u64,
    /// Small programs whose values were computed.
    pub evaluated: u64,
    /// Executions whose results are not known.
    pub not_evaluated: u64,
}
