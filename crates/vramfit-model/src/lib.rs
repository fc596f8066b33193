//! What the virtual GPU and the analysis of its runs have in common: no `unsafe`, no clock, no
//! threads, and no I/O except on what callers pass in.
//!
//! | module | subject |
//! | --- | --- |
//! | [`allocator`] | JAX's GPU allocators |
//! | [`gpu`] | the GPU catalog |
//! | [`host`] | what the driver reports about the GPUs of this machine |
//! | [`program`] | compiled programs: memory, aliasing, cost |
//! | [`published`] | pool statistics that a JAX process publishes |
//! | [`run_config`] | what a dry run is to do |
//! | [`settings`] | variables and flags that JAX reads |
//! | [`shared_gpus`] | memory use of virtual GPUs that several processes share |
//! | [`trace`] | the recorded events of a run |

pub mod allocator;
pub mod gpu;
pub mod host;
pub mod program;
pub mod published;
pub mod run_config;
pub mod settings;
pub mod shared_gpus;
#[cfg(test)]
mod testing;
pub mod trace;

pub use vramfit_base::{Bytes, Error, ErrorKind, Result};
pub(crate) use vramfit_base::{bytes, error, nearest};
