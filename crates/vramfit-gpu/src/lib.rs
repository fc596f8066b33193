//! The real machine: what its driver says of the cards, and who holds their memory.
//!
//! | file | subject |
//! | --- | --- |
//! | `absence` | why there is no driver to ask, and what cures it |
//! | `nvml` | opening NVML, NVIDIA's management library |
//! | `card` | one card or slice: every figure, or why it is not known |
//! | `list` | the processes on a card |
//! | `sampler` | the whole machine, now and again every second |
//! | `process`, `cgroup`, `user` | what the system knows of a process |
//! | `surroundings`, `limit` | the container around us, and its limit on host memory |
//!
//! The library is the driver's own and is opened when asked for, never linked. `VRAMFIT_NVML` names
//! it where it lies in an unusual place; the stand-in of the tests is found that way too.
//!
//! Safety: its functions are called with the types that NVIDIA's headers give them, on handles
//! that it gave out and that live as long as it is open.
#![allow(unsafe_code, reason = "this crate calls the driver's C libraries")]

mod absence;
mod card;
mod cgroup;
mod limit;
mod list;
mod nvml;
mod process;
mod sampler;
mod surroundings;
mod user;

pub use absence::Absence;
pub use sampler::Sampler;
pub use surroundings::surroundings;

use vramfit_core::Result;
use vramfit_core::machine::Machine;

/// Asks the driver for the cards of this machine and who holds them, once.
///
/// A figure that the driver does not give is `None`, with the reason in `unknown`; a card that
/// does not answer is listed all the same. Takes some milliseconds a card, most of it for the list
/// of processes; whoever asks again and again keeps a [`Sampler`].
///
/// # Errors
/// `no-driver` when there is no driver, or none that answers; [`Absence`] tells the cases apart.
pub fn machine() -> Result<Machine> {
    Ok(Sampler::open()?.machine())
}
