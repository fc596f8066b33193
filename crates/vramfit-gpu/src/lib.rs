//! The GPUs of this host: what the driver reports, which processes use them, and allocating their memory.
//!
//! | file | subject |
//! | --- | --- |
//! | `driver_error` | why the driver is unavailable, and what to do about it |
//! | `nvml` | opening NVML, NVIDIA's management library |
//! | `device` | properties and metrics of one GPU or MIG slice |
//! | `processes` | the processes that use a GPU |
//! | `sampler` | all GPUs of the host, once or every second |
//! | `process`, `cgroup`, `user` | what `/proc` knows of a process |
//! | `environment`, `cgroup_memory` | the container of this process, and its limit on host memory |
//! | `discover` | which GPUs a program will see, and what a pool can have of each |
//! | `cuda` | the functions of CUDA's driver library, and their errors |
//! | `driver`, `pattern` | allocating GPU memory, verifying and freeing it |
//!
//! Both libraries are the driver's own and are opened when asked for, never linked. `VRAMFIT_NVML`
//! and `VRAMFIT_CUDA` name them where they lie in an unusual place; the fake driver of the tests is
//! found that way too.
//!
//! Safety: their functions are called with the types that NVIDIA's headers give them, on handles
//! that they gave out and that live as long as they are open.
#![allow(unsafe_code, reason = "this crate calls the driver's C libraries")]

mod cgroup;
mod cgroup_memory;
mod cuda;
mod device;
mod discover;
mod driver;
mod driver_error;
mod environment;
mod nvml;
mod pattern;
mod process;
mod processes;
mod sampler;
mod user;

pub use discover::{GpuOverrides, PROCESSES_VARIABLE, describe_other_use};
pub use driver::{CudaDevice, DeviceContext, Driver, MemoryInfo};
pub use driver_error::DriverUnavailable;
pub use environment::host_environment;
pub use pattern::Mismatch;
pub use process::printable;
pub use sampler::Sampler;

use vramfit_model::Result;
use vramfit_model::host::{Host, Process};

/// Returns command, user and container of a process; `None` if it does not exist in this PID namespace.
pub fn process(pid: u32) -> Option<Process> {
    let mut found = Process { pid, ..Process::default() };
    process::fill_details(&mut found).then_some(found)
}

/// Queries the driver once for the GPUs of this host and the processes that use them.
///
/// A reading that is unavailable is `None`, with the reason in `unknown`; a GPU that does not respond is
/// listed all the same. Takes some milliseconds per GPU, most of it for the list of processes; to query
/// repeatedly keep a [`Sampler`].
///
/// # Errors
/// `no-driver` if the driver is unavailable; [`DriverUnavailable`] distinguishes the cases.
pub fn query_host() -> Result<Host> {
    Ok(Sampler::open()?.scan())
}
