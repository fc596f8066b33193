//! What one compiled program needs and promises: its buffers, shapes, aliases and shardings.
//!
//! Everything is derived from the *serialized* executable of the CUDA plugin, because that exists
//! in every JAX release and holds the whole module; what the plugin answers about an executable
//! that was compiled without a device differs from release to release.
//!
//! | file | subject |
//! | --- | --- |
//! | [`proto`] | the fields of XLA's protobuf messages that are read or written here |
//! | `container` | the record file that newer releases wrap the messages in |
//! | [`shape`] | element types, dimensions, layouts, sizes in bytes |
//! | `sharding` | how many devices have the same part of a parameter |
//! | [`options`] | JAX's compile options: devices, and flags added for a compile attempt |
//! | `outputs` | where the outputs lie, for releases that do not say it |
//! | `workspace` | scratch memory of cuBLAS and other libraries that is in the plan |
//! | `scratch` | scratch memory of cuFFT, cuSOLVER and other libraries that is not |
//! | `sizes` | how large its arguments, outputs, temporaries and code are |
//! | `collectives` | which devices exchange data |
//! | [`cost`] | how long the program takes, by XLA's cost model and by what the GPU does at most |
//! | `executable` | from serialized bytes to a [`Program`] |
//! | `optimized_module` | the module of a dump, or of an executable |
//! | `hlo` | the module as a graph |
//! | `phase` | forward, backward, computed again |
//! | `texts` | each different text once |
//! | [`memory`] | where the memory of a program goes: owners, lines, the peak |

mod collectives;
mod container;
pub mod cost;
mod executable;
mod fingerprint;
mod hlo;
pub mod memory;
mod optimized_module;
pub mod options;
mod outputs;
mod phase;
pub mod proto;
mod scratch;
pub mod shape;
mod sharding;
mod sizes;
mod texts;
pub mod workspace;

pub use collectives::DeviceGroups;
pub use cost::ProgramTime;
pub use executable::{Alias, BufferAllocation, BufferClass, Program, executable_and_options};
pub use hlo::HloGraph;
pub use memory::ProgramMemory;
pub use optimized_module::OptimizedModule;
pub use options::CompileOptions;

pub use scratch::{CUFFT_PLAN_ERROR, EstimateSource, ScratchNeed, ScratchPhase};
pub use shape::{ElementType, MemorySpace, Shape, parse_dimensions};
pub use sizes::ProgramSizes;
