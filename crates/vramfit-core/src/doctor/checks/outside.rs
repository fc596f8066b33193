//! What does the process hold beside its pool?

use super::super::check::Check;
use super::super::facts::Facts;
use super::super::trial::Outcome;
use super::{unfinished, uses_gpu};
use crate::Bytes;

const ID: &str = "outside-pool";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let held = match facts.trial.hold() {
        Outcome::Done(held) => held,
        other => return vec![unfinished(ID, facts, other)],
    };
    if let Some(gpu) = &facts.virtual_gpu {
        return vec![Check::skip(
            ID,
            format!(
                "a virtual GPU has no driver to ask; a context would take about {} (estimate)",
                Bytes(gpu.context_bytes)
            ),
        )];
    }
    if !uses_gpu(facts) {
        return vec![Check::skip(ID, "JAX is not on a GPU")];
    }
    let Some(machine) = &facts.machine_during_trial else {
        return vec![Check::skip(
            ID,
            "the driver did not answer while the trial ran",
        )];
    };
    let of_trial: Vec<Option<u64>> = machine
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.processes)
        .filter(|process| process.pid == held.pid)
        .map(|process| process.used_bytes)
        .collect();
    let Some(used) = of_trial.iter().copied().collect::<Option<Vec<u64>>>() else {
        return vec![Check::skip(
            ID,
            "the driver does not tell what each process holds here",
        )];
    };
    let Outcome::Done(pools) = facts.trial.pool() else {
        return vec![Check::skip(ID, "the pool is not known; see `pool`")];
    };
    let pools: Option<Vec<u64>> = pools.pools.iter().map(|pool| pool.pool_bytes).collect();
    let (Some(pools), false) = (pools, used.is_empty()) else {
        let why = match used.is_empty() {
            true => {
                "the driver counts processes by numbers that mean nothing here, as in containers"
            }
            false => "the allocator does not tell what its pool has taken",
        };
        return vec![Check::skip(ID, why)];
    };
    let (used, pool): (u64, u64) = (used.iter().sum(), pools.iter().sum());
    let outside = used.saturating_sub(pool);
    vec![
        Check::pass(
            ID,
            format!(
                "{} beside the pool: the context and what was loaded so far",
                Bytes(outside)
            ),
        )
        .because(format!(
            "the driver counts {} for the trial, {} of it are its pool",
            Bytes(used),
            Bytes(pool)
        ))
        .because("cuBLAS, cuDNN and NCCL take more when a program first uses them"),
    ]
}
