//! The examination as JSON; `docs/commands/doctor.md` is its description.

use serde::Serialize;

use super::{Check, Driver, Examination, Facts, Status};
use crate::host::Host;

/// The value that `vramfit doctor --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Record<'a> {
    schema: u32,
    all_right: bool,
    counts: Counts,
    checks: &'a [Check],
    python: &'a str,
    jax: Option<&'a str>,
    virtual_gpu: Option<&'a str>,
    machine: Option<&'a Host>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Counts {
    pass: usize,
    warn: usize,
    fail: usize,
    skip: usize,
}

impl<'a> Record<'a> {
    /// Makes the record of an examination and the facts that it rests on.
    pub fn of(examination: &'a Examination, facts: &'a Facts) -> Record<'a> {
        Record {
            schema: 1,
            all_right: examination.is_all_right(),
            counts: Counts {
                pass: examination.count(Status::Pass),
                warn: examination.count(Status::Warn),
                fail: examination.count(Status::Fail),
                skip: examination.count(Status::Skip),
            },
            checks: &examination.checks,
            python: &facts.inventory.executable,
            jax: facts.inventory.version("jax"),
            virtual_gpu: facts.virtual_gpu.as_ref().map(|gpu| gpu.name.as_str()),
            machine: match &facts.driver {
                Driver::Machine(machine) => Some(machine),
                _ => None,
            },
        }
    }
}
