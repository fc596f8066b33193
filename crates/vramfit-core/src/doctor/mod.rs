//! Is this machine, this environment, this JAX all right?
//!
//! | file | what it is |
//! | --- | --- |
//! | `facts.rs` | what was found out about machine and environment: plain values |
//! | `trial.rs` | what JAX did when it was tried, step by step |
//! | `checks/` | one check a file: facts in, findings out |
//! | `check.rs` | what a check found: status, sentence, evidence, one thing to do |
//! | `requirement.rs` | which versions one package asks of another |
//! | `record.rs`, `text.rs` | the examination as JSON, and for a person |
//!
//! Nothing here looks at a machine; `vramfit doctor` gathers the facts.

mod check;
mod checks;
mod facts;
mod record;
mod requirement;
mod text;
mod trial;

pub use check::{Check, Status};
pub use facts::{Driver, Facts, Inventory, Missing, VirtualCard};
pub use record::Record;
pub use text::{Line, lines, summary};
pub use trial::{
    Backend, Computed, Device, Ended, Failure, Held, Imported, Jitted, Outcome, Pool, PoolOptions,
    Pools, Step, Trained, Transferred, Trial,
};

/// What an examination found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    /// The checks, in the order in which they are told.
    pub checks: Vec<Check>,
}

impl Examination {
    /// Examines machine, environment and JAX.
    pub fn of(facts: &Facts) -> Examination {
        Examination {
            checks: checks::all(facts),
        }
    }

    /// Examines what training needs, in five checks: backend, computation, transfers, jit, readiness.
    pub fn from_training(facts: &Facts) -> Examination {
        Examination {
            checks: checks::training(facts),
        }
    }

    /// Returns how many checks ended so.
    pub fn count(&self, status: Status) -> usize {
        let same = |check: &&Check| check.status == status;
        self.checks.iter().filter(same).count()
    }

    /// Says whether nothing fails; warnings are allowed.
    pub fn is_all_right(&self) -> bool {
        self.count(Status::Fail) == 0
    }
}
