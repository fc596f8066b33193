//! The analysis of runs: no `unsafe`, no clock, no threads, and no I/O except on what callers pass
//! in.
//!
//! | module | subject |
//! | --- | --- |
//! | [`check`] | GPU memory that was accepted, and that is needed now |
//! | [`planning`] | search for the largest batch and for rematerialization plans |
//! | [`replay`] | the events repeated through allocators |
//! | [`section`] | parts of reports, as values |
//! | [`analysis`] | the summary of a run |
//! | [`diff`] | why one run needs more memory than another |
//! | [`report`] | reports as text, HTML and JSON |

pub mod analysis;
pub mod check;
pub mod diff;
pub mod planning;
pub mod replay;
pub mod report;
pub mod section;

pub(crate) use vramfit_advice::{explain, lint};
pub use vramfit_base::{Bytes, Error, ErrorKind, Result};
pub(crate) use vramfit_base::{bytes, error, nearest};
pub(crate) use vramfit_model::{allocator, gpu, host, program, run_config, settings, trace};
