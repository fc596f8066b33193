//! The analysis of runs, settings, machines and logs: no `unsafe`, no clock, no threads, and no I/O
//! except on what callers pass in. What it analyses is in `vramfit-model`.
//!
//! | module | subject |
//! | --- | --- |
//! | [`env`] | settings for a shell, a container or a cluster |
//! | [`check`] | GPU memory that was accepted, and that is needed now |
//! | [`doctor`] | checks of driver, environment and JAX installation |
//! | [`lint`] | problems in settings, and fixes |
//! | [`planning`] | search for the largest batch and for rematerialization plans |
//! | [`replay`] | the events repeated through allocators |
//! | [`section`] | parts of reports, as values |
//! | [`analysis`] | the summary of a run |
//! | [`diff`] | why one run needs more memory than another |
//! | [`explain`] | why a program ran out of memory, from its log |
//! | [`report`] | reports as text, HTML and JSON |

pub mod analysis;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod env;
pub mod explain;
pub mod lint;
pub mod planning;
pub mod replay;
pub mod report;
pub mod section;

pub use vramfit_base::{Bytes, Error, ErrorKind, Result};
pub(crate) use vramfit_base::{bytes, error, nearest};
pub(crate) use vramfit_model::{
    allocator, gpu, host, program, published, run_config, settings, trace,
};
