//! The virtual machine and its GPUs, as JAX sees them.
//!
//! | file | subject |
//! | --- | --- |
//! | `client` | PJRT clients: from JAX's create options to a machine and its devices |
//! | `topology` | the topology that programs are compiled for |
//! | `virtual_device` | PJRT devices and their descriptions |
//! | `memory` | the memory spaces of a device |
//! | `machine` | the allocator of each device, and the trace |
//! | `shared` | the memory of a GPU: private, or shared with other processes |

pub(crate) mod client;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod shared;
pub(crate) mod topology;
pub(crate) mod virtual_device;
