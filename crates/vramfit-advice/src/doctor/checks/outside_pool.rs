//! What does the process hold beside its pool?

use super::super::check::Check;
use super::super::probe::StepOutcome;
use super::super::system_info::SystemInfo;
use super::{incomplete, uses_gpu};
use crate::Bytes;

const ID: &str = "outside-pool";

pub(super) fn check(info: &SystemInfo) -> Check {
    let held = match info.probe.hold() {
        StepOutcome::Done(held) => held,
        other => return incomplete(ID, info, other),
    };
    if let Some(gpu) = &info.virtual_gpu {
        return Check::skip(
            ID,
            format!(
                "a virtual GPU has no driver; a CUDA context would take about {} (estimate)",
                Bytes(gpu.context_bytes).estimated()
            ),
        );
    }
    if !uses_gpu(info) {
        return Check::skip(ID, "JAX does not use a GPU");
    }
    let Some(host) = &info.host_during_probe else {
        return Check::skip(ID, "the driver did not respond during the probe");
    };
    let of_trial: Vec<Option<u64>> = host
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.processes)
        .filter(|process| process.pid == held.pid)
        .map(|process| process.used_bytes)
        .collect();
    let Some(used) = of_trial.iter().copied().collect::<Option<Vec<u64>>>() else {
        return Check::skip(ID, "the driver does not report memory per process here");
    };
    let StepOutcome::Done(pools) = info.probe.pool() else {
        return Check::skip(ID, "the size of the pool is unknown; see `pool`");
    };
    let pools: Option<Vec<u64>> = pools.pools.iter().map(|pool| pool.pool_bytes).collect();
    let (Some(pools), false) = (pools, used.is_empty()) else {
        let why = match used.is_empty() {
            true => "the driver reports PIDs of another namespace, as in containers",
            false => "the allocator does not report the size of its pool",
        };
        return Check::skip(ID, why);
    };
    let (used, pool): (u64, u64) = (used.iter().sum(), pools.iter().sum());
    let outside = used.saturating_sub(pool);
    Check::pass(
        ID,
        format!("{} outside the pool: CUDA context and loaded libraries", Bytes(outside)),
    )
    .evidence_line(format!(
        "the driver reports {} for the probe, of which {} is its pool",
        Bytes(used),
        Bytes(pool)
    ))
    .evidence_line("cuBLAS, cuDNN and NCCL allocate more when first used")
}
