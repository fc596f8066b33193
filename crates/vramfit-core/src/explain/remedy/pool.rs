//! Remedies that change the pool, or what the program needs of it.

use super::Remedy;
use crate::allocator::PoolOptions;
use crate::bytes::Bytes;
use crate::explain::facts::Facts;
use crate::explain::figures::FitFigures;
use crate::explain::message::Message;
use crate::gpu;
use crate::settings::{DEFAULT_FRACTION, MAX_FRACTION, USUAL_UNIFIED_FRACTION};

pub(super) fn plan(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "plan",
        "recompute or offload activations: measured without a GPU, applied without editing the script",
        format!("vramfit plan --gpu {} -- {}", facts.gpu_name(), facts.command),
    )
}

pub(super) fn smaller_batch(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "smaller-batch",
        "use the largest batch that fits",
        format!(
            "vramfit plan --gpu {} --vary batch=1..1024 -- {} --batch {{batch}}",
            facts.gpu_name(),
            facts.command
        ),
    )
}

/// Returns `true` if the request exceeds what the whole GPU could have, by the limit that follows from the compiler's
/// budget and JAX's fraction of three quarters.
fn exceeds_gpu(facts: &Facts<'_>) -> bool {
    let limit = facts.figures.limit_bytes.or(facts.most_of_budget());
    let most = limit.map(|limit| limit as f64 / DEFAULT_FRACTION * MAX_FRACTION);
    let rounded = facts.rounded_bytes();
    facts.figures.gpu_total_bytes.is_none()
        && rounded.zip(most).is_some_and(|(rounded, most)| rounded as f64 > most)
}

/// Uses memory of the host, where the GPU is too small by itself and both together are not.
pub(super) fn unified_memory(facts: &Facts<'_>) -> Option<Remedy> {
    let figures = &facts.figures;
    let rounded = facts.rounded_bytes()?;
    let limit = figures.limit_bytes.or(facts.most_of_budget());
    let total = limit.map(|limit| (limit as f64 / DEFAULT_FRACTION) as u64);
    let total = figures.gpu_total_bytes.or(total)?;
    let in_use = figures.in_use_bytes.map_or(rounded, |in_use| in_use.saturating_add(rounded));
    let needed = figures.need.as_ref().map_or(in_use, |need| need.total_bytes.max(in_use));
    let is_larger = figures.gpu_total_bytes.map_or(exceeds_gpu(facts), |_| needed > total);
    let is_set = facts.log.has(|message| {
        matches!(message, Message::Setting { name, .. } if name == "TF_FORCE_UNIFIED_MEMORY")
    });
    let setting = format!("`XLA_CLIENT_MEM_FRACTION={USUAL_UNIFIED_FRACTION}`");
    let why = match is_set {
        true => format!(
            "add a fraction above 1, such as {setting}: `TF_FORCE_UNIFIED_MEMORY` by itself gives the pool no more \
             than the GPU has, with it also memory of the host, slowly"
        ),
        false => format!(
            "let the program use memory of the host as well, slowly: unified memory \
             (`TF_FORCE_UNIFIED_MEMORY=true` with a fraction above 1, such as {setting})"
        ),
    };
    let is_possible = is_larger && needed as f64 <= total as f64 * USUAL_UNIFIED_FRACTION;
    // Of a GPU that is not named, the total is a guess.
    let amount = figures
        .gpu_total_bytes
        .map(|total| format!(", at least {} of it", Bytes(needed.saturating_sub(total))));
    is_possible.then(|| {
        Remedy::new(
            "unified-memory",
            format!("{why}{}", amount.unwrap_or_default()),
            format!("vramfit run --spill -- {}", facts.command),
        )
    })
}

/// Makes smaller what the program returns.
pub(super) fn smaller_outputs(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "smaller-outputs",
        "return less at once: a smaller buffer, fewer steps or samples in one call, or a narrower type",
        format!("vramfit dryrun --gpu {} --full -- {}", facts.gpu_name(), facts.command),
    )
}

pub(super) fn raise_fraction(facts: &Facts<'_>) -> Option<Remedy> {
    if exceeds_gpu(facts) {
        return None;
    }
    let fraction = MAX_FRACTION;
    let command = format!("vramfit run --fraction {fraction} -- {}", facts.command);
    let figures = &facts.figures;
    let (Some(total), Some(limit)) = (figures.gpu_total_bytes, figures.limit_bytes) else {
        return Some(Remedy::new(
            "raise-fraction",
            format!("give the pool {:.0} % of the GPU instead of 75 %", fraction * 100.0),
            command,
        ));
    };
    let raised = PoolOptions {
        total_memory_bytes: total,
        memory_fraction: FitFigures::raised_fraction(),
        ..PoolOptions::default()
    };
    let gained = raised.limit_bytes().checked_sub(limit).filter(|bytes| *bytes > 0)?;
    let short = facts
        .rounded_bytes()
        .zip(figures.in_use_bytes)
        .map(|(rounded, used)| (rounded.saturating_add(used)).saturating_sub(limit));
    let enough = match short {
        Some(short) if short > gained => {
            format!(", which is not enough: {} are missing", Bytes(short))
        }
        _ => String::new(),
    };
    let text = format!("give the pool {:.0} % of the GPU{enough}", fraction * 100.0);
    Some(Remedy::new("raise-fraction", text, command).with_log_bytes(Some(gained)))
}

pub(super) fn larger_gpu(facts: &Facts<'_>) -> Option<Remedy> {
    // Where outputs are all that there is, nothing else is in use.
    let by_outputs = facts.figures.outputs_only.map(|_| 0);
    let needed = facts.rounded_bytes()?.checked_add(facts.figures.in_use_bytes.or(by_outputs)?)?;
    let fits =
        |gpu: &&gpu::Gpu| gpu.mig_parent.is_none() && gpu.total_memory_bytes / 4 * 3 >= needed;
    let smallest = gpu::all().iter().filter(fits).min_by_key(|gpu| gpu.total_memory_bytes)?;
    let text =
        format!("use a GPU whose pool has {} or more, such as {}", Bytes(needed), smallest.name);
    let command = format!("vramfit dryrun --gpu {} -- {}", smallest.name, facts.command);
    Some(Remedy::new("larger-gpu", text, command))
}

pub(super) fn several_gpus(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "shard",
        "shard the array over several GPUs, and try the sharding on virtual ones",
        format!("vramfit dryrun --gpu h100-80gx8 -- {}", facts.command),
    )
}

pub(super) fn fragmentation(facts: &Facts<'_>) -> Vec<Remedy> {
    let figures = &facts.figures;
    let command = facts.command;
    let scattered = figures.free_bytes.zip(figures.largest_free_block_bytes);
    let scattered = scattered.and_then(|(free, largest)| free.checked_sub(largest));
    let mut remedies = vec![
        Remedy::new(
            "cuda-async",
            "use CUDA's allocator, in which free memory need not be contiguous",
            format!("vramfit run --allocator cuda_async -- {command}"),
        )
        .with_log_bytes(scattered),
        Remedy::new(
            "donate",
            "donate what a step replaces, so that no gaps appear; restore checkpoints before other large \
             arrays exist",
            format!("vramfit dryrun --gpu {} --full -- {command}", facts.gpu_name()),
        ),
    ];
    let dump = facts.log.dump();
    if dump.and_then(|dump| dump.grows()) == Some(true) {
        remedies.push(Remedy::new(
            "preallocate",
            "preallocate the pool: the regions of a growing pool never merge",
            format!("vramfit run --preallocate -- {command}"),
        ));
    }
    if dump.is_some_and(|dump| dump.is_partitioned()) {
        remedies.push(Remedy::new(
            "one-ended-pool",
            "use a pool that is not partitioned into two ends",
            format!("XLA_FLAGS=--xla_gpu_enable_allocator_spatial_partitioning=false {command}"),
        ));
    }
    remedies
}
