//! The report as JSON, as described in `docs/commands/doctor.md`.

use serde::Serialize;
use vramfit_base::JSON_SCHEMA;

use super::{Check, DoctorReport, Driver, Status, SystemInfo};
use crate::host::Host;

/// The value that `vramfit doctor --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorOutput<'a> {
    schema: u32,
    passed: bool,
    counts: Counts,
    checks: &'a [Check],
    python: &'a str,
    jax: Option<&'a str>,
    virtual_gpu: Option<&'a str>,
    host: Option<&'a Host>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Counts {
    pass: usize,
    warn: usize,
    fail: usize,
    skip: usize,
}

impl<'a> DoctorOutput<'a> {
    /// Combines a report with the system information that it is based on.
    pub fn new(report: &'a DoctorReport, info: &'a SystemInfo) -> DoctorOutput<'a> {
        DoctorOutput {
            schema: JSON_SCHEMA,
            passed: report.passed(),
            counts: Counts {
                pass: report.count(Status::Pass),
                warn: report.count(Status::Warn),
                fail: report.count(Status::Fail),
                skip: report.count(Status::Skip),
            },
            checks: &report.checks,
            python: &info.inventory.executable,
            jax: info.inventory.version("jax"),
            virtual_gpu: info.virtual_gpu.as_ref().map(|gpu| gpu.name.as_str()),
            host: match &info.driver {
                Driver::Available(host) => Some(host),
                _ => None,
            },
        }
    }
}
