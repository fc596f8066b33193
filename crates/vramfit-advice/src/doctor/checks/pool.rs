//! Is JAX's pool what was asked for?

use super::super::check::Check;
use super::super::probe::{Pool, PoolOptions, StepOutcome};
use super::super::system_info::SystemInfo;
use super::{incomplete, uses_gpu};
use crate::Bytes;
use crate::allocator::is_fully_preallocated;
use crate::settings::{DEFAULT_FRACTION, FractionPolicy, PluginSettings};

const ID: &str = "pool";

/// One part in a hundred of the GPU: CUDA, which JAX asks, and NVML, which we ask, do not count a
/// GPU's memory alike.
const MAX_COUNTING_DIFFERENCE: f64 = 0.01;

pub(super) fn check(info: &SystemInfo) -> Vec<Check> {
    let pools = match info.probe.pool() {
        StepOutcome::Done(pools) => pools,
        StepOutcome::Failed(failure) => {
            return vec![
                Check::fail(
                    ID,
                    format!("the first array could not be created: {}", failure.error),
                    "see which processes use the GPU (check `gpu`), or reduce the pool: `vramfit \
                     run --fraction 0.5 -- COMMAND`",
                )
                .evidence_lines(failure.logged)
                .evidence_lines(allocation_errors(info)),
            ];
        }
        other => return vec![incomplete(ID, info, other)],
    };
    if !uses_gpu(info) {
        return vec![Check::skip(ID, "JAX does not use a GPU, so it has no pool")];
    }
    let options = pools.options.unwrap_or_default();
    let count = pools.pools.len() as u64;
    let checks = pools.pools.iter().map(|pool| evaluate(info, &options, pool, count));
    checks.collect()
}

/// Judges a pool, one of `count`.
fn evaluate(info: &SystemInfo, options: &PoolOptions, pool: &Pool, count: u64) -> Check {
    let device = &pool.device;
    let allocator = options.allocator.as_deref().unwrap_or("default");
    let preallocates =
        options.preallocate != Some(false) && matches!(allocator, "default" | "bfc" | "cuda_async");
    let Some(limit) = pool.bytes_limit.filter(|limit| *limit > 0) else {
        return Check::skip(
            ID,
            format!("{device}: the allocator `{allocator}` has no pool, or does not report it"),
        );
    };
    let total = info.gpu_bytes();
    let part = total.map(|total| limit as f64 / total as f64);
    let of_gpu = match (part, total) {
        (Some(part), Some(total)) => {
            format!(", {:.1} % of the GPU's {}", part * 100.0, Bytes(total))
        }
        _ => String::new(),
    };
    // The client's options are merged into these by JAX itself, where we do not see it.
    let known = !info.environment.contains_key("JAX_PJRT_CLIENT_CREATE_OPTIONS")
        && !matches!(allocator, "platform" | "vmm" | "address");
    let policy = options.memory_fraction_policy.as_deref();
    let policy = policy.and_then(|text| FractionPolicy::parse(text).ok());
    let wanted =
        policy.map(|policy| policy.start).or(options.memory_fraction).unwrap_or(DEFAULT_FRACTION);
    let is_unified = is_pool_unified(info, allocator);
    // Managed memory is never less than the GPU's (`CreateBFCAllocator` of XLA).
    let wanted = if is_unified { wanted.max(1.0) } else { wanted };
    let is_near = |part: f64, wanted: f64| (part - wanted).abs() <= MAX_COUNTING_DIFFERENCE;
    // A release that does not grow pools ends with the start, another with the cap.
    let cap = policy.and_then(|policy| policy.cap);
    let reaches_cap = |part: f64| cap.is_some_and(|cap| is_near(part, cap));
    let differs =
        |part: f64| known && wanted <= 1.0 && !is_near(part, wanted) && !reaches_cap(part);
    let preallocates = preallocates && !part.is_some_and(reaches_cap);
    if part.is_some_and(differs) {
        return Check::fail(
            ID,
            format!(
                "{device}: {:.1} % of the GPU was requested, but the pool limit is {}{of_gpu}",
                wanted * 100.0,
                Bytes(limit)
            ),
            "see the check `settings`: a setting does not take effect as intended",
        );
    }
    if is_unified {
        return unified(info, device, limit, total, count);
    }
    match pool.pool_bytes {
        Some(had) if preallocates && !is_fully_preallocated(limit, had) => Check::fail(
            ID,
            format!(
                "{device}: {} requested{of_gpu}, but only {} allocated; JAX does not report this",
                Bytes(limit),
                Bytes(had)
            ),
            fix(info, total, had),
        )
        .evidence_line(format!("bytes_limit {limit}, pool_bytes {had}"))
        .evidence_lines(allocation_errors(info)),
        Some(had) if preallocates => {
            Check::pass(ID, format!("{device}: {} preallocated{of_gpu}", Bytes(had)))
        }
        Some(had) => Check::pass(
            ID,
            format!("{device}: grows up to {}{of_gpu}; {} so far", Bytes(limit), Bytes(had)),
        ),
        None => Check::pass(
            ID,
            format!(
                "{device}: up to {}{of_gpu}; this allocator does not report its current size",
                Bytes(limit)
            ),
        ),
    }
}

/// Returns `true` if the pool is of managed memory, which may lie in host memory.
fn is_pool_unified(info: &SystemInfo, allocator: &str) -> bool {
    let variable = |name: &str| info.environment.get(name).cloned();
    matches!(allocator, "default" | "bfc")
        && PluginSettings::read(variable).is_ok_and(|plugin| plugin.unified_memory)
}

/// Judges a pool of managed memory, one of `count` alike, by what the host has for all of them.
fn unified(info: &SystemInfo, device: &str, limit: u64, total: Option<u64>, count: u64) -> Check {
    let beyond = limit.saturating_sub(total.unwrap_or(limit));
    if beyond == 0 {
        let text = format!("{device}: up to {}, all of the GPU, of managed memory", Bytes(limit));
        return Check::pass(ID, text);
    }
    let text = format!(
        "{device}: up to {}, {} more than the GPU has, which would lie in host memory, at the speed of the link",
        Bytes(limit),
        Bytes(beyond)
    );
    // The host of a dry run is not that of the GPU.
    let available = info.host_environment.available_memory_bytes();
    let Some(available) = available.filter(|_| info.virtual_gpu.is_none()) else {
        return Check::pass(ID, text);
    };
    let free = match count {
        1 => format!("the host has {} free", Bytes(available)),
        count => format!("the host has {} free for {count} GPUs", Bytes(available)),
    };
    if available >= beyond.saturating_mul(count) {
        return Check::pass(ID, format!("{text}; {free}"));
    }
    Check::warn(
        ID,
        format!("{text}; {free}"),
        "let `vramfit run --spill -- COMMAND` compute the fraction: a program that needs more host memory than there \
         is, is killed",
    )
}

/// Returns the share that was had, in hundredths, as a setting.
fn fix(info: &SystemInfo, total: Option<u64>, had: u64) -> String {
    let holders = match info.virtual_gpu {
        Some(_) => "reduce `--occupied` of the dry run",
        None => "stop the processes that use the GPU (check `gpu`)",
    };
    let part = total.map(|total| (had as f64 / total as f64 * 100.0).floor() / 100.0);
    match part.filter(|part| *part > 0.0) {
        Some(part) => format!("{holders}, or `vramfit run --fraction {part} -- COMMAND`"),
        None => format!("{holders}, or use another GPU"),
    }
}

/// Returns the lines in which the allocator says that it could not have what it wanted.
fn allocation_errors(info: &SystemInfo) -> Vec<String> {
    let speaks = |line: &&String| {
        ["OUT_OF_MEMORY", "out of memory", "failed to allocate", "Failed to allocate"]
            .iter()
            .any(|words| line.contains(words))
    };
    info.probe.log.iter().filter(speaks).take(3).cloned().collect()
}
