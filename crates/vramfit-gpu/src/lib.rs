//! The real machine: what its driver says of the cards, and who holds their memory; and memory of our own.
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
//! | `cuda` | the functions of CUDA's driver library, and their errors |
//! | `driver`, `pattern` | taking card memory, proving that it is there, giving it back |
//!
//! Both libraries are the driver's own and are opened when asked for, never linked. `VRAMFIT_NVML`
//! and `VRAMFIT_CUDA` name them where they lie in an unusual place; the stand-in of the tests is
//! found that way too.
//!
//! Safety: their functions are called with the types that NVIDIA's headers give them, on handles
//! that they gave out and that live as long as they are open.
#![allow(unsafe_code, reason = "this crate calls the driver's C libraries")]

mod absence;
mod card;
mod cgroup;
mod cuda;
mod driver;
mod limit;
mod list;
mod nvml;
mod pattern;
mod process;
mod sampler;
mod surroundings;
mod user;

pub use absence::Absence;
pub use driver::{Driver, DriverCard, Free, SimulatedDeviceMemory};
pub use pattern::Wrong;
pub use sampler::Sampler;
pub use surroundings::surroundings;

use vramfit_core::Result;
use vramfit_core::machine::{Machine, Process};

/// Tells what the system knows of a process: its command, user and container; `None` if there is none
/// of that number here.
pub fn process(pid: u32) -> Option<Process> {
    let mut found = Process {
        pid,
        ..Process::default()
    };
    process::describe(&mut found).then_some(found)
}

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
