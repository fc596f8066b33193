//! Checks driver, environment and JAX installation.
//!
//! | file | what it is |
//! | --- | --- |
//! | `system_info.rs` | host and environment: plain values |
//! | `probe.rs` | what JAX did when it was probed, step by step |
//! | `checks/` | one check per file: system information in, results out |
//! | `check.rs` | the result of a check: status, message, evidence, fix |
//! | `requirement.rs` | version requirements of Python packages |
//! | `json.rs`, `text.rs` | the report as JSON, and for people |
//!
//! Nothing here reads the host; `vramfit doctor` gathers the information.

mod check;
mod checks;
mod json;
mod probe;
mod requirement;
mod system_info;
mod text;

pub use check::{Check, Status};
pub use json::DoctorOutput;
pub use probe::{
    BackendResult, ComputeResult, Device, ImportResult, JaxProbe, JitResult, Pool, PoolOptions,
    PoolResult, ProbeExit, ProbeProcess, ProbeStep, StepFailure, StepOutcome, TrainingResult,
    TransferResult,
};
pub use system_info::{Driver, Inventory, MissingReason, SystemInfo, VirtualGpu};
pub use text::{COLUMNS, Line, lines, summary};

/// The results of all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorReport {
    /// The checks, in the order in which they are printed.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// Checks host, environment and JAX.
    pub fn new(info: &SystemInfo) -> DoctorReport {
        DoctorReport { checks: checks::all(info) }
    }

    /// Runs the five training checks: backend, computation, transfers, jit, readiness.
    pub fn for_training(info: &SystemInfo) -> DoctorReport {
        DoctorReport { checks: checks::training(info) }
    }

    /// Returns how many checks have that status.
    pub fn count(&self, status: Status) -> usize {
        let same = |check: &&Check| check.status == status;
        self.checks.iter().filter(same).count()
    }

    /// Returns whether no check failed; warnings are allowed.
    pub fn passed(&self) -> bool {
        self.count(Status::Fail) == 0
    }
}
