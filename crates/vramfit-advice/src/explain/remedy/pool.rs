//! Remedies that change the pool, or make the free memory of it usable.

use std::ops::RangeInclusive;

use super::Remedy;
use crate::bytes::Bytes;
use crate::explain::facts::Facts;
use crate::explain::message::Message;
use crate::explain::shares::OtherProcessesUsage;
use crate::settings::{MAX_FRACTION, USUAL_UNIFIED_FRACTION};

/// A larger part of the GPU for the pool: where the pool has less, and where that may be enough.
pub(super) fn raise_fraction(facts: &Facts<'_>) -> Option<Remedy> {
    /// What little is left beside a large fraction is no cure that can be counted on, unless both are known.
    const MIN_GAIN: f64 = 0.1;
    let settings = &facts.settings;
    let is_of_pool = settings.has_pool() && !settings.unified_memory;
    let before = settings.fraction_in_force();
    if !is_of_pool || before >= MAX_FRACTION || exceeds_gpu(facts) {
        return None;
    }
    let command = format!("vramfit run --fraction {MAX_FRACTION} -- {}", facts.command);
    let figures = &facts.figures;
    let (total, limit) = (figures.gpu_total_bytes, figures.limit_bytes);
    let is_certain = total.is_some() && (limit.is_some() || settings.certain_fraction().is_some());
    if !is_certain && MAX_FRACTION - before < MIN_GAIN {
        return None;
    }
    let limit = limit.or_else(|| Some(settings.limit_bytes(total?, before)));
    let raised = match (total, limit) {
        (Some(total), _) => Some(settings.limit_bytes(total, MAX_FRACTION)),
        (None, limit) => limit.map(|limit| (limit as f64 / before * MAX_FRACTION) as u64),
    };
    let gained = match raised.zip(limit) {
        Some((raised, limit)) => Some(raised.checked_sub(limit).filter(|bytes| *bytes > 0)?),
        None => None,
    };
    if facts.need().zip(raised).is_some_and(|(need, raised)| need.least_bytes > raised) {
        return None;
    }
    let about = if total.is_some() { "" } else { "about " };
    let pools = raised.zip(limit).map_or(String::new(), |(raised, limit)| {
        format!(": a pool of {about}{} instead of {}", Bytes(raised), Bytes(limit))
    });
    let now = match settings.fraction {
        _ if is_certain => String::new(),
        Some(named) => format!("; {} names {named}", settings.source()),
        None if settings.is_of_process => format!("; it is {before} now"),
        None => format!("; unless it is set, it is {before}"),
    };
    let is_enough = is_enough(facts);
    let enough = match facts.need().filter(|_| is_enough) {
        Some(need) => format!("; {}", facts.describe_need(need)),
        None => String::new(),
    };
    let text = format!("raise JAX's memory fraction to {MAX_FRACTION}{pools}{enough}{now}");
    let remedy = Remedy::new("raise-fraction", text, command);
    Some(remedy.with_log_bytes(gained.filter(|_| is_certain || is_enough)))
}

/// The same, where the fraction is named, since it was chosen and may be the reason, or is enough.
pub(super) fn raise_decisive_fraction(facts: &Facts<'_>) -> Option<Remedy> {
    raise_fraction(facts).filter(|_| facts.settings.fraction.is_some() || is_enough(facts))
}

/// Returns `true` if the program fits on the GPU of the log with the largest fraction, and not with that in force.
fn is_enough(facts: &Facts<'_>) -> bool {
    let settings = &facts.settings;
    let (Some(total), Some(need)) = (facts.figures.gpu_total_bytes, facts.need()) else {
        return false;
    };
    let limit = |fraction| settings.limit_bytes(total, fraction);
    let has = facts.figures.limit_bytes.unwrap_or_else(|| limit(settings.fraction_in_force()));
    !need.is_least && need.least_bytes > has && need.bytes <= limit(MAX_FRACTION)
}

/// Returns `true` if the request exceeds what the whole GPU could have, by the limit that follows from the compiler's
/// budget and the fraction in force.
fn exceeds_gpu(facts: &Facts<'_>) -> bool {
    let most = facts.gpu_bytes().map(|total| total as f64 * MAX_FRACTION);
    let needed = facts.rounded_bytes().or(facts.need().map(|need| need.least_bytes));
    facts.figures.gpu_total_bytes.is_none()
        && needed.zip(most).is_some_and(|(needed, most)| needed as f64 > most)
}

/// Uses memory of the host, where the GPU is too small by itself and both together are not.
pub(super) fn unified_memory(facts: &Facts<'_>) -> Option<Remedy> {
    let figures = &facts.figures;
    let settings = &facts.settings;
    let needed = facts.need()?.bytes;
    let fraction = settings.fraction_in_force();
    let host = match figures.gpu_total_bytes {
        Some(total) => format!(", at least {} of it", Bytes(needed.checked_sub(total)?)),
        None => String::new(),
    };
    let total = facts.gpu_bytes();
    let is_possible = match total {
        Some(total) => {
            (figures.gpu_total_bytes.is_some() || exceeds_gpu(facts))
                && needed as f64 <= total as f64 * USUAL_UNIFIED_FRACTION
        }
        None => OF_UNKNOWN_GPU.contains(&needed),
    };
    if !is_possible || !settings.has_pool() {
        return None;
    }
    if settings.unified_memory && fraction > 1.0 {
        return larger_unified_fraction(facts, needed);
    }
    let condition = match total {
        Some(_) => String::new(),
        None => format!("if the GPU has less than {}: ", Bytes(needed)),
    };
    let setting = format!("{}={USUAL_UNIFIED_FRACTION}", settings.fraction_name());
    let text = match settings.unified_memory {
        true => format!(
            "{condition}add a fraction above 1, such as `{setting}`: `TF_FORCE_UNIFIED_MEMORY` by itself gives no \
             memory of the host{host}"
        ),
        false => format!(
            "{condition}use memory of the host as well, slowly{host}: `TF_FORCE_UNIFIED_MEMORY=true {setting}`"
        ),
    };
    Some(Remedy::new("unified-memory", text, format!("vramfit run --spill -- {}", facts.command)))
}

/// The same, where the log shows that it is meant and is not in force.
pub(super) fn completed_unified_memory(facts: &Facts<'_>) -> Option<Remedy> {
    unified_memory(facts).filter(|_| facts.settings.unified_memory)
}

/// Unified memory is in force, and the fraction gives less than is needed.
fn larger_unified_fraction(facts: &Facts<'_>, needed: u64) -> Option<Remedy> {
    let total = facts.gpu_bytes()?;
    let has = facts.settings.limit_bytes(total, facts.settings.fraction_in_force());
    // In tenths, rounded up.
    let fraction = (needed as f64 / total as f64 * 10.0).ceil() / 10.0;
    (needed > has).then(|| {
        let text = format!(
            "raise the fraction of unified memory to {fraction} or more, if the host has that much: the pool may take {} \
             now, and {} are needed",
            Bytes(has),
            Bytes(needed)
        );
        Remedy::new("unified-memory", text, format!("vramfit run --spill -- {}", facts.command))
    })
}

/// Of a GPU that is not known, what is less is no reason to use the host's memory, and what is more is too much for it.
const OF_UNKNOWN_GPU: RangeInclusive<u64> = 8 << 30..=256 << 30;

/// Returns the fraction to try where one leaves too little to others, and how much they need is not known: the usual advice,
/// or half of what is less already.
pub(super) fn lower_fraction(before: f64) -> f64 {
    const USUAL_FRACTION: f64 = 0.6;
    // In hundredths, rounded down.
    if before > USUAL_FRACTION { USUAL_FRACTION } else { (before * 50.0).floor() / 100.0 }
}

/// Asks for no more than is free: then the pool is preallocated, where else it is left to grow.
pub(super) fn fitting_fraction(facts: &Facts<'_>) -> Option<Remedy> {
    /// What is less is no pool to begin with.
    const MIN_FRACTION: f64 = 0.1;
    /// What the context and the libraries of a process take beside its pool.
    const CONTEXT_BYTES: u64 = 1 << 29;
    let figures = &facts.figures;
    let others = || {
        let others = OtherProcessesUsage::find(facts)?;
        Some((others.bytes, others.total))
    };
    let others = || others().or(facts.tensorflow_bytes().zip(figures.gpu_total_bytes));
    let left = || {
        let (bytes, total) = others()?;
        Some((total.saturating_sub(bytes.saturating_add(CONTEXT_BYTES)), total))
    };
    let obtained = figures.pool_bytes.zip(figures.gpu_total_bytes).or_else(left);
    // In hundredths, rounded down.
    let obtained =
        obtained.map(|(pool, total)| (pool as f64 / total as f64 * 100.0).floor() / 100.0);
    if obtained.is_some_and(|it| it < MIN_FRACTION) {
        return None;
    }
    let before = facts.settings.fraction_in_force();
    let fraction = obtained.filter(|it| *it < before).unwrap_or_else(|| lower_fraction(before));
    let command = format!("vramfit run --fraction {fraction} -- {}", facts.command);
    let text =
        "where they have to stay: ask for what they leave, so that JAX has its pool from the start";
    (facts.settings.has_pool() && fraction > 0.0)
        .then(|| Remedy::new("lower-fraction", text, command))
}

/// From JAX 0.11 on a pool asks the driver for memory that processes can share, of which it gives less at once under WSL2
/// (openxla/xla#48979).
pub(super) fn under_wsl(facts: &Facts<'_>) -> Option<Remedy> {
    const MIN_REFUSED_BYTES: u64 = 4 << 30;
    let is_large = facts.log.driver_refusals().any(|(_, size)| size.bytes >= MIN_REFUSED_BYTES);
    let is_wsl = facts.log.has(|message| *message == Message::Wsl);
    let is_shared = facts.figures.jax.is_none_or(|jax| jax >= (0, 11, 0));
    (is_large && is_wsl && is_shared).then(|| {
        Remedy::new(
            "cuda-async",
            "use CUDA's allocator: under WSL2 the driver refuses 4 GiB and more at once of the memory that the pool of \
             JAX 0.11 and later asks for",
            format!("vramfit run --allocator cuda_async -- {}", facts.command),
        )
    })
}

/// Takes the whole limit at startup.
pub(super) fn preallocate(facts: &Facts<'_>, why: &str) -> Remedy {
    let command = format!("vramfit run --preallocate -- {}", facts.command);
    Remedy::new("preallocate", why, command)
}

pub(super) fn fragmentation(facts: &Facts<'_>) -> Vec<Remedy> {
    let figures = &facts.figures;
    let command = &facts.command;
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
            format!("vramfit dryrun --gpu {} --full -- {command}", facts.gpu_label()),
        ),
    ];
    let dump = facts.log.dump();
    let grows = dump.and_then(|dump| dump.grows()).or(facts.settings.preallocate.map(|it| !it));
    if grows == Some(true) {
        let why = "preallocate the pool: the regions of a growing pool never merge";
        remedies.push(preallocate(facts, why));
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
