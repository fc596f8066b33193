//! The model and the analysis: no `unsafe`, no clock, no threads, and no I/O except on what callers
//! pass in.
//!
//! | module | subject |
//! | --- | --- |
//! | [`allocator`] | JAX's GPU allocators |
//! | [`env`] | settings for a shell, a container or a cluster |
//! | [`gpu`] | the GPU catalog |
//! | [`host`] | what the driver reports about the GPUs of this machine |
//! | [`published`] | pool statistics that a JAX process publishes |
//! | [`program`] | compiled programs: memory, aliasing, cost |
//! | [`check`] | GPU memory that was accepted, and that is needed now |
//! | [`doctor`] | checks of driver, environment and JAX installation |
//! | [`lint`] | problems in settings, and fixes |
//! | [`run_config`] | what a dry run is to do |
//! | [`settings`] | variables and flags that JAX reads |
//! | [`planning`] | search for the largest batch and for rematerialization plans |
//! | [`shared_gpus`] | memory use of virtual GPUs that several processes share |
//! | [`trace`] | the recorded events of a run |
//! | [`replay`] | the events repeated through allocators |
//! | [`section`] | parts of reports, as values |
//! | [`analysis`] | the summary of a run |
//! | [`diff`] | why one run needs more memory than another |
//! | [`explain`] | why a program ran out of memory, from its log |
//! | [`report`] | reports as text, HTML and JSON |

pub mod allocator;
pub mod analysis;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod env;
pub mod explain;
pub mod gpu;
pub mod host;
pub mod lint;
pub mod planning;
pub mod program;
pub mod published;
pub mod replay;
pub mod report;
pub mod run_config;
pub mod section;
pub mod settings;
pub mod shared_gpus;
#[cfg(test)]
mod testing;
pub mod trace;

pub use vramfit_base::{Bytes, Error, ErrorKind, Result};
pub(crate) use vramfit_base::{bytes, error, nearest};
