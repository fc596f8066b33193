//! The virtual machine and its GPUs, as JAX sees them.
//!
//! | file | subject |
//! | --- | --- |
//! | `client` | PJRT clients: from JAX's create options to a machine and its devices |
//! | `client_options` | what decides which GPUs a client has |
//! | `topology` | the topology that programs are compiled for |
//! | `virtual_device` | PJRT devices and their descriptions |
//! | `memory` | the memory spaces of a device |
//! | `machine` | the allocator of each device, and the trace |
//! | `gpu_memory` | the memory of a GPU: private, or shared with other processes |
//! | `sharing` | with which processes GPUs are shared, and through which file |
//! | `usage_file` | that file, while it is locked |
//! | `shared_gpu` | a shared GPU: what this process and others use of it |

pub(crate) mod client;
pub(crate) mod client_options;
mod gpu_memory;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod shared_gpu;
pub(crate) mod sharing;
pub(crate) mod topology;
mod usage_file;
pub(crate) mod virtual_device;
