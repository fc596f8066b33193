//! Executing programs: the allocations of XLA's run time without its arithmetic.
//!
//! | file | subject |
//! | --- | --- |
//! | `execution` | `PJRT_LoadedExecutable_Execute`: one call on all its devices |
//! | `device_call` | the part of a call on one device: arguments, allocations, outputs |
//! | `step_detector` | which program is the training step, and when the run is over |
//! | `program_history` | what it knows of one program |

mod device_call;
pub(crate) mod execution;
mod program_history;
mod step_detector;
