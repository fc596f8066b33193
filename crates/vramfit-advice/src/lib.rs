//! What to do about settings, machines and failed runs: no `unsafe`, no clock, no threads, and no
//! I/O except on what callers pass in.
//!
//! | module | subject |
//! | --- | --- |
//! | [`doctor`] | checks of driver, environment and JAX installation |
//! | [`env`] | settings for a shell, a container or a cluster |
//! | [`explain`] | why a program ran out of memory, from its log |
//! | [`lint`] | problems in settings, and fixes |

pub mod doctor;
pub mod env;
pub mod explain;
pub mod lint;

pub use vramfit_base::{Bytes, Error, ErrorKind, Result};
pub(crate) use vramfit_base::{bytes, error, nearest};
pub(crate) use vramfit_model::{allocator, gpu, host, program, published, settings, trace};
