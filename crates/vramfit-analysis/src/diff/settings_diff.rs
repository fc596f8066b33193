//! What else is different about two runs: the GPU, the settings, the versions, the command.

use serde::Serialize;

use super::sum;
use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::trace::Header;

/// What is to be known of a run beside its parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunInfo {
    /// What its trace begins with.
    pub header: Header,
    /// The bytes that all its parts add up to: in use at the moment that decides, and the request
    /// where it was refused.
    pub total_bytes: u64,
    /// What that is of the run's need.
    pub total_kind: TotalKind,
    /// The program that ran at that moment; empty between programs.
    pub program: String,
    /// What the allocator may take on the device that decides; `None` where it has no limit.
    pub limit_bytes: Option<u64>,
    /// Whether every request was met; `None` when that cannot be told.
    pub fits: Option<bool>,
    /// Executions of any program.
    pub executions: u64,
}

/// What the bytes of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TotalKind {
    /// The peak of a run that ended properly.
    Peak,
    /// The highest so far, of a run that was cut off or died.
    SoFar,
    /// What it would have held had the first refused request been met. What would have come after it
    /// is not known.
    Refused,
}

/// Something that is not the same in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDiff {
    /// What it is, such as `GPU`.
    pub what: &'static str,
    /// What it was in A.
    pub a: String,
    /// What it is in B.
    pub b: String,
}

impl RunInfo {
    pub(super) fn of(answer: &RunSummary) -> RunInfo {
        let attribution = answer.attribution.as_ref();
        let program = attribution.and_then(|held| answer.programs.get(held.program?));
        let parts = attribution.map_or(&[][..], |held| &held.parts);
        let total_kind = match attribution {
            Some(held) if held.refused => TotalKind::Refused,
            _ if !answer.complete || answer.fits() != Some(true) => TotalKind::SoFar,
            _ => TotalKind::Peak,
        };
        RunInfo {
            header: answer.header.clone(),
            total_bytes: sum(parts.iter().map(|part| part.bytes)),
            total_kind,
            program: program.map_or_else(String::new, |program| program.name.clone()),
            limit_bytes: answer.critical_device().and_then(|device| device.limit_bytes),
            fits: answer.fits(),
            executions: answer.executions,
        }
    }
}

/// Returns what is not the same, in the order in which it is told.
pub(super) fn other_differences(a: &RunInfo, b: &RunInfo) -> Vec<SettingDiff> {
    let mut other_differences = Vec::new();
    let mut compare = |what: &'static str, of: &dyn Fn(&RunInfo) -> String| {
        let (a, b) = (of(a), of(b));
        if a != b {
            other_differences.push(SettingDiff { what, a, b });
        }
    };
    compare("fits", &|run| {
        let fits = run.fits.map(|fits| if fits { "yes" } else { "no" });
        fits.unwrap_or("unknown").to_owned()
    });
    compare("command", &|run| run.header.command.join(" "));
    compare("GPU", &|run| run.header.gpu().name.clone());
    compare("number of GPUs", &|run| run.header.devices.to_string());
    compare("GPU memory", &|run| Bytes(run.header.total_memory_bytes()).to_string());
    compare("occupied memory", &|run| Bytes(run.header.run.occupied_bytes).to_string());
    compare("pool limit", &|run| {
        let limit = run.limit_bytes.map(|limit| Bytes(limit).to_string());
        limit.unwrap_or_else(|| "none".to_owned())
    });
    compare("JAX", &|run| run.header.jax.clone());
    compare("compiler", &|run| run.header.plugin.clone());
    compare("allocator", &|run| run.header.allocator.clone());
    compare("memory fraction", &|run| {
        // It is a 32-bit number that was widened; 0.9 would be shown as 0.8999999761581421.
        (run.header.memory_fraction as f32).to_string()
    });
    compare("growth of the pool", &|run| {
        let cap = run.header.memory_cap;
        cap.map_or("none".to_owned(), |cap| format!("asked for, to {cap}"))
    });
    compare("preallocation", &|run| on(run.header.preallocate));
    compare("partitioned pool", &|run| on(run.header.spatial_partitioning));
    compare("unified memory", &|run| on(run.header.unified_memory));
    compare("program at the peak", &|run| match run.program.as_str() {
        "" => "none".to_owned(),
        name => name.to_owned(),
    });
    compare("executions", &|run| run.executions.to_string());
    other_differences
}

fn on(switch: bool) -> String {
    if switch { "on" } else { "off" }.to_owned()
}
