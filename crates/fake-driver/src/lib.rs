//! Stands in for NVIDIA's driver in tests: one shared library that is `libnvidia-ml.so.1` and
//! `libcuda.so.1` at once.
//!
//! It exports the C functions that vramfit calls, under their own names, and is loaded by the same
//! path as the real ones (`VRAMFIT_NVML`, `VRAMFIT_CUDA`). Its machine is a file of JSON beside the
//! library, with `.json` at the end of its name; see [`Description`]. So every test has a copy of
//! the library in a folder of its own ([`FakeDriver`]). Memory is only accounted for, in a third file,
//! so that what one process holds is seen by every other, as on a GPU.
//!
//! | file | subject |
//! | --- | --- |
//! | `description` | the machine, and the calls that fail |
//! | `device_allocations` | who holds what, in a file that all processes share |
//! | `nvml` | the functions of NVML |
//! | `cuda` | the functions of CUDA's driver library |
//! | `c_string` | strings in C |
//! | `fake_driver` | a copy of the library with a machine, for tests |
//!
//! Safety: callers pass pointers that are valid for the call, as both headers demand.
#![allow(unsafe_code, reason = "this crate is a C library")]
#![allow(
    non_snake_case,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "the names and the rules are those of NVIDIA's headers"
)]

mod c_string;
mod cuda;
mod description;
mod device_allocations;
mod fake_driver;
mod nvml;

pub use description::{Description, a100, memory, t4};
pub use device_allocations::DeviceAllocations;
pub use fake_driver::FakeDriver;
