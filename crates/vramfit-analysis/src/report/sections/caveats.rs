//! What a report does not include, and what in it is not exact.

use super::{library_scratch, placeholders, processes};
use crate::analysis::facts::autotune_range;
use crate::analysis::{Comparison, Condition, RunSummary};
use crate::bytes::Bytes;
use crate::gpu::Certainty;

/// Returns the caveats of a dry run, one sentence each.
pub(in crate::report) fn of_dryrun(summary: &RunSummary) -> Vec<String> {
    let mut points = Vec::new();
    points.extend(truncated_trace(summary));
    points.extend(placeholders::values_caveats(summary));
    points.push(format!("{LIBRARIES}; the CUDA context above is an estimate"));
    points.extend(library_scratch::caveats(summary));
    points.extend(outside_the_pool(summary));
    points.extend(processes::caveat(summary));
    let has_results = summary.header.run.autotune_results.is_some();
    points.push(autotune_range::caveat(summary.autotune_range.as_ref(), has_results));
    points.extend(compile_attempts(summary));
    points.extend(allocator_model(summary));
    points.extend(estimated_total(summary));
    points
}

/// Returns the caveats of a replay, one sentence each.
pub(in crate::report) fn of_replay(comparison: &Comparison) -> Vec<String> {
    let after = &comparison.after;
    let mut points = Vec::new();
    if comparison.ends_at_refusal {
        points.push(
            "what the program does after the failed request: in the recorded run it succeeded, so the \
             replay ends there"
                .to_owned(),
        );
    }
    if comparison.newly_granted.is_some() {
        points.push(
            "what the program does after the request that now succeeds: in the recorded run it failed, so \
             the replay ends there; a dry run with these settings covers the rest"
                .to_owned(),
        );
    }
    points.extend(recompiled(comparison));
    points.extend(shared_gpu(comparison));
    points.extend(truncated_trace(after));
    points.push(format!(
        "{LIBRARIES}; the CUDA context is estimated at {}",
        Bytes(after.header.run.context_bytes).estimated()
    ));
    points.extend(library_scratch::caveats(after));
    points.extend(outside_the_pool(after));
    points.extend(allocator_model(after));
    points.extend(estimated_total(after));
    points
}

const LIBRARIES: &str =
    "NCCL, CUDA graphs, and cuBLAS and cuDNN handles, which allocate outside the pool";

/// What XLA would have compiled differently.
fn recompiled(comparison: &Comparison) -> Option<String> {
    let before = comparison.before.as_ref()?;
    let limit = |summary: &RunSummary| summary.devices.first().and_then(|it| it.limit_bytes);
    let why = if before.header.gpu().name != comparison.after.header.gpu().name {
        "for another GPU, XLA chooses other kernels and fits programs into another limit"
    } else if limit(before) != limit(&comparison.after) {
        "XLA schedules and rematerializes programs to fit the limit, which is another one here"
    } else {
        return None;
    };
    Some(format!(
        "recompilation: {why}; the replay has the temporaries of the recorded run. A dry run with these \
         settings recompiles"
    ))
}

/// Explains why results differ although no setting does.
fn shared_gpu(comparison: &Comparison) -> Option<String> {
    let (before, after) = (comparison.before.as_ref()?, &comparison.after);
    let used = before.devices.iter().map(|it| it.used_by_others_bytes);
    if let Some(used) = used.max().filter(|used| *used > 0) {
        return Some(format!(
            "other processes on the GPU: in the recorded run they used up to {}, in the replay there are \
             none; `--occupied` accounts for memory that other processes use",
            Bytes(used)
        ));
    }
    let pools = |summary: &RunSummary| -> Vec<_> {
        let devices = summary.devices.iter();
        devices.map(|device| device.pool_bytes).collect()
    };
    (before.header == after.header && pools(before) != pools(after)).then(|| {
        "what the driver granted: in the recorded run there was another driver or other processes, in \
         the replay the GPU is not shared"
            .to_owned()
    })
}

fn truncated_trace(summary: &RunSummary) -> Option<String> {
    let text =
        "the rest of the run: the trace is truncated, and this report covers the recorded part";
    (!summary.complete && summary.until.is_none()).then(|| text.to_owned())
}

/// Warns where the pool and what lies outside of it exceed the GPU together.
fn outside_the_pool(summary: &RunSummary) -> Option<String> {
    let header = &summary.header;
    let device = summary.critical_device()?;
    let total = device
        .pool_bytes
        .unwrap_or(device.peak_bytes)
        .saturating_add(header.run.context_bytes)
        .saturating_add(device.outside_bytes)
        .saturating_add(header.run.occupied_bytes);
    let over = total.checked_sub(header.total_memory_bytes())?;
    let conditions = summary.verdict().conditions;
    let is_said =
        conditions.iter().any(|condition| matches!(condition, Condition::OutsidePool { .. }));
    // Unified memory makes room.
    (over > 0 && !is_said && !header.unified_memory).then(|| {
        format!(
            "a shortage outside the pool: together with the pool, it exceeds the memory of the GPU by {}; \
             choose a smaller pool",
            Bytes(over)
        )
    })
}

/// Names the programs that did not compile with the compiler's default options.
fn compile_attempts(summary: &RunSummary) -> Option<String> {
    let programs = summary.programs.iter();
    let mut others = programs.filter(|program| !program.compile_attempt.is_empty());
    let first = others.next()?;
    Some(format!(
        "default compiler options: {} of {} programs did not compile with them; `{}` compiled with `{}`",
        others.count() + 1,
        summary.programs.len(),
        first.name,
        first.compile_attempt
    ))
}

fn allocator_model(summary: &RunSummary) -> Option<String> {
    let model = summary.allocator_model?;
    let name = &summary.header.allocator;
    Some(format!("exact behavior of the allocator `{name}`, which is a model: {model}"))
}

fn estimated_total(summary: &RunSummary) -> Option<String> {
    let header = &summary.header;
    let gpu = header.gpu();
    (gpu.memory_certainty == Certainty::Estimated).then(|| {
        format!(
            "the exact total memory of {}: {} is an estimate, since no driver's report of it is known",
            gpu.name,
            Bytes(header.total_memory_bytes())
        )
    })
}
