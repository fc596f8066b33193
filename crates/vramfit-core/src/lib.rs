//! The thinking half of vramfit: no `unsafe`, no clock, no threads, and no I/O beyond what it is
//! handed. Everything here can be tested in seconds on any machine.
//!
//! | room | question it answers |
//! | --- | --- |
//! | [`allocator`] | where does JAX's allocator place each request, and when does it fail? |
//! | [`env`] | how are the settings written for a shell, a container, a cluster? |
//! | [`gpu`] | which GPUs are there, and what would XLA be told about them? |
//! | [`machine`] | what does the driver say of the GPUs here, and who holds them? |
//! | [`published`] | what does a JAX process say of its own pool while it runs? |
//! | [`program`] | what does one compiled program need, and what does it alias? |
//! | [`doctor`] | is this machine, this environment, this JAX all right? |
//! | [`lint`] | what is wrong with the settings of a program, and what mends it? |
//! | [`settings`] | which variables and flags does this JAX read, and what do they mean? |
//! | [`shared_gpus`] | who holds what of virtual GPUs that several processes share? |
//! | [`trace`] | what happened in a run, in which order? |
//! | [`replay`] | what do the allocators do with these events, in this run or under other settings? |
//! | [`analysis`] | what did the run come to? |
//! | [`diff`] | what makes one run need more memory than another? |
//! | [`train`] | what does the file of a training run say, and can it be? |
//! | [`report`] | how is the answer told? |

pub mod allocator;
pub mod analysis;
pub mod bytes;
pub mod diff;
pub mod doctor;
pub mod duration;
pub mod env;
pub mod error;
pub mod gpu;
pub mod host;
pub mod lint;
pub mod nearest;
pub mod program;
pub mod published;
pub mod replay;
pub mod report;
pub mod search;
pub mod settings;
pub mod shared_gpus;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod train;

pub use bytes::Bytes;
pub use error::{Error, ErrorKind, Result};
