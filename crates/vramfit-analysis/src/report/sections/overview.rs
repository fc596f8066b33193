//! The metrics of the critical device, and what is needed to reproduce the run.

use super::{failure, library_scratch, owners, processes, step_time};
use crate::allocator::AllocatorKind;
use crate::analysis::facts::autotune_range;
use crate::analysis::{DeviceSummary, Evidence, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::{allocation_phrase, executions, mebibytes};
use crate::report::{Bar, Content, Metric, Section, Value};
use crate::trace::Header;

/// The peak as a part of what was available.
pub(in crate::report) fn usage(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let part_bytes = summary.needed_bytes();
    let bar = Bar {
        label: match summary.header.devices {
            0 | 1 => String::new(),
            _ => format!("GPU {}", summary.header.gpu_of(device.device)),
        },
        part_bytes,
        whole_bytes: device.capacity_bytes,
        owners: owners::bytes_of_kinds(summary, part_bytes),
        uncertain_bytes: library_scratch::uncertain_bytes(summary, device),
    };
    Some(Section::new("", Content::Bars(vec![bar])))
}

/// The figures that decide.
pub(in crate::report) fn metrics(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let mut metrics = Vec::new();
    if let Some(first) = summary.out_of_memory() {
        metrics.extend(failure::metrics(summary, first));
    }
    if let Some(abort) = summary.abort.as_ref().filter(|_| summary.failure_count == 0) {
        let note = format!("after {}: {}", executions(abort.executions), abort.message);
        let value = Value::Missing("crashes");
        metrics.push(Metric::new("on a real GPU", value, note));
    }
    metrics.push(limit(&summary.header, device));
    let peak = device.peak.as_ref();
    let label = match summary.out_of_memory() {
        Some(first) if peak.is_some_and(|peak| peak.event > first.context.event) => {
            // The program went on.
            "peak of the run"
        }
        Some(_) => "peak before failure",
        None => "peak in use",
    };
    metrics.push(Metric::new(
        label,
        Value::Bytes(device.peak_bytes),
        peak.map_or_else(String::new, allocation_phrase),
    ));
    let range = summary.autotune_range.as_ref();
    metrics
        .extend(range.and_then(|it| autotune_range::peak_metric(it, device, summary.is_refused())));
    metrics.extend(library_scratch::metric(summary, device));
    metrics.extend(step_time::metric(summary));
    metrics.extend(reserved(summary, device));
    Some(Section::new("", Content::Metrics(metrics)))
}

/// What `nvidia-smi` shows where that is much more than the program needs.
fn reserved(summary: &RunSummary, device: &DeviceSummary) -> Option<Metric> {
    const MIN_RATIO: u64 = 10;
    let header = &summary.header;
    let pool = device.pool_bytes.filter(|_| header.preallocate && !header.unified_memory)?;
    let total = header.total_memory_bytes();
    let is_used = device.peak_bytes > pool / MIN_RATIO;
    if summary.is_refused() || is_used || pool == 0 || total == 0 {
        return None;
    }
    // Twice the peak: a small pool has less room beside what lies in it.
    let fraction = (2.0 * device.peak_bytes as f64 / total as f64 * 100.0).ceil().max(1.0) / 100.0;
    let less = match summary.verdict().fits {
        Some(true) => format!("`vramfit run --fraction {fraction}` reserves less, and "),
        // The run was cut short, or needs more than it shows.
        _ => String::new(),
    };
    let outside = header.run.context_bytes.saturating_add(device.outside_bytes);
    let note = format!(
        "all of the preallocated pool, and about {} outside of it, whatever the program uses; {less}with \
         `--no-preallocate` the pool grows as needed",
        Bytes(outside).estimated()
    );
    Some(Metric::new("nvidia-smi shows", Value::Bytes(pool.saturating_add(outside)), note))
}

/// Further figures of the pool.
pub(in crate::report) fn details(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let header = &summary.header;
    let mut metrics = Vec::new();
    metrics.extend(total_range(summary));
    metrics.extend(pool(header, device));
    metrics.extend(processes::metric(device));
    let state = device.at_peak;
    if let Some((free, largest)) = state.free_bytes.zip(state.largest_free_block_bytes) {
        let share = Value::Fraction(state.fragmentation().unwrap_or(0.0));
        let note = format!("largest block {}, {share} fragmented", Bytes(largest));
        metrics.push(Metric::new("free at peak", Value::Bytes(free), note));
    }
    metrics.push(Metric::new(
        "steady state",
        Value::Bytes(device.steady_state_bytes),
        steady_state_note(summary),
    ));
    metrics.push(outside_the_pool(header, device));
    Some(Section::new("the pool", Content::Metrics(metrics)))
}

pub(in crate::report) fn outside_the_pool(header: &Header, device: &DeviceSummary) -> Metric {
    let outside = header.run.context_bytes.saturating_add(device.outside_bytes);
    let note = format!(
        "CUDA context {} (estimate), programs {}",
        Bytes(header.run.context_bytes).estimated(),
        Bytes(device.outside_bytes)
    );
    Metric::new("outside the pool", Value::Text(Bytes(outside).estimated()), note)
}

/// What the allocator may reserve.
fn limit(header: &Header, device: &DeviceSummary) -> Metric {
    let total = Bytes(header.total_memory_bytes());
    let is_async = header.allocator == AllocatorKind::CudaAsync.name();
    let Some(limit) = device.limit().filter(|_| header.total_memory_bytes() > 0) else {
        let note = if is_async {
            format!(
                "without preallocation, `cuda_async` may use all {total} of the GPU; JAX reports a \
                 `bytes_limit` of 0"
            )
        } else {
            let allocator = &header.allocator;
            format!("`{allocator}` allocates from the driver; the GPU has {total}")
        };
        return Metric::new("limit", Value::Missing("none"), note);
    };
    let fraction = limit as f64 / header.total_memory_bytes() as f64;
    let mut note = format!("{} of the GPU's {total}", Value::Fraction(fraction));
    if header.run.occupied_bytes > 0 {
        let occupied = Bytes(header.run.occupied_bytes);
        note += &format!(", of which other processes use {occupied}");
    }
    if let Some(requested) = header.run.requested_limit_bytes.filter(|it| *it != limit) {
        note += &format!("; requested {requested} bytes, got {limit}");
    }
    if is_async {
        note += "; `cuda_async` keeps this much for reuse, and allocates more when it needs more";
        return Metric::new("release threshold", Value::Bytes(limit), note);
    }
    Metric::new("limit", Value::Bytes(limit), note)
}

fn pool(header: &Header, device: &DeviceSummary) -> Option<Metric> {
    let pool = device.pool_bytes?;
    let note = match header.preallocate {
        _ if pool == 0 => "not reserved: nothing was allocated",
        false => "grows as needed",
        true if device.limit_bytes.is_some_and(|limit| pool < limit) => {
            "reserved at the first allocation; the GPU had no more"
        }
        true => "reserved at the first allocation",
    };
    Some(Metric::new("pool", Value::Bytes(pool), note))
}

/// What becomes of the failed request where the driver reports the highest total.
fn total_range(summary: &RunSummary) -> Option<Metric> {
    let range = summary.total_range?;
    let value = if range.is_met { "succeeds" } else { "also fails" };
    let total = mebibytes(range.max_total_memory_bytes);
    let note = format!("on a card that reports {total}, the most that drivers report");
    let value = Value::Text(value.to_owned());
    Some(Metric::new("highest total", value, note))
}

fn steady_state_note(summary: &RunSummary) -> String {
    let is_searched = summary.step_search.is_some();
    let guess = match summary.step_evidence {
        Some(Evidence::MostMemory | Evidence::BackwardPass) if is_searched => {
            ", which needs most; no training step was detected"
        }
        _ => "",
    };
    match summary.step() {
        Some(step) if step.calls > 1 => {
            let (before, last) = (step.calls - 1, step.calls);
            let name = &step.name;
            format!("in use between calls {before} and {last} of `{name}`{guess}")
        }
        Some(step) => format!("in use at the start of the only call of `{}`", step.name),
        None => "nothing was executed".to_owned(),
    }
}

pub(in crate::report) fn metadata(summary: &RunSummary) -> Vec<Metric> {
    let header = &summary.header;
    let pool = match header.allocator.as_str() {
        "platform" | "address" => String::new(),
        _ => {
            let how = match (header.preallocate, header.spatial_partitioning) {
                (true, true) => "preallocated, partitioned",
                (true, false) => "preallocated",
                (false, _) => "growing",
            };
            let cap = header.memory_cap.map(|cap| format!(" (growth to {cap} asked for)"));
            // It is a 32-bit number that was widened; 0.9 would be shown as 0.8999999761581421.
            let fraction = header.memory_fraction as f32;
            format!(", fraction {fraction}{}, {how}", cap.unwrap_or_default())
        }
    };
    let gpu = format!("{} x {} ({})", header.devices, header.gpu().name, header.gpu().description);
    vec![
        Metric::text("command", header.command.join(" ")),
        Metric::text("GPU", gpu),
        Metric::text("allocator", format!("{}{pool}", header.allocator)),
        Metric::text("jax", format!("{} (PJRT {})", header.jax, header.plugin)),
        Metric::new("executions", Value::Count(summary.executions), ""),
    ]
}
