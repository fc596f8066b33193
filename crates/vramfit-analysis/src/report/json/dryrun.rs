//! What `vramfit dryrun --json` prints.

use serde_json::{Value, json};
use vramfit_base::JSON_SCHEMA;

use super::attribution::{attribution, cause, owners};
use super::merge;
use crate::analysis::{
    AllocationFailure, Cause, Condition, DeviceSummary, ProgramSummary, RunSummary,
};
use crate::program::cost::{MAX_UNKNOWN_SHARE, ProgramTime};
use crate::report::sections::{conditions, settings};

pub(in crate::report) fn dryrun(summary: &RunSummary, caveats: &[String]) -> Value {
    merge([
        outcome(summary),
        critical_device(summary),
        programs(summary),
        failures(summary),
        findings(summary),
        json!(summary.facts),
        run(summary, caveats),
    ])
}

fn outcome(summary: &RunSummary) -> Value {
    let header = &summary.header;
    let max_total = Some(header.max_total_memory_bytes()).filter(|max| *max > 0);
    json!({
        "schema": JSON_SCHEMA,
        "jax": header.jax,
        "gpu": {
            "name": header.gpu().name,
            "description": header.gpu().description,
            "count": header.devices,
            "machine_count": header.machine_gpu_count(),
            "total_memory_bytes": header.total_memory_bytes(),
            "max_total_memory_bytes": max_total,
        },
        "host": header.host,
        "hosts": summary.hosts,
        "pid": header.pid,
        "sharing": header.run.sharing.kind(),
        "fits": summary.fits(),
        "verdict": verdict(summary),
        "complete": summary.complete,
        "process_exit": summary.process_exit,
    })
}

fn verdict(summary: &RunSummary) -> Value {
    let verdict = summary.verdict();
    json!({"fits": verdict.fits, "conditions": conditions(&verdict.conditions)})
}

/// Returns conditions with their text and bearing, as every command prints them.
pub(in crate::report) fn conditions(conditions: &[Condition]) -> Value {
    let conditions = conditions.iter().map(|condition| {
        let mut object = json!(condition);
        object["text"] = conditions::clause(condition).into();
        object["bearing"] = json!(condition.bearing());
        object["inconclusive"] = condition.leaves_open().into();
        object
    });
    Value::Array(conditions.collect())
}

fn critical_device(summary: &RunSummary) -> Value {
    let empty = DeviceSummary::default();
    let device = summary.critical_device().unwrap_or(&empty);
    json!({
        "limit_bytes": device.limit_bytes,
        "capacity_bytes": device.capacity_bytes,
        "pool_bytes": device.pool_bytes,
        "peak_bytes": device.peak_bytes,
        "needed_bytes": summary.needed_bytes(),
        "used_by_others_bytes": device.used_by_others_bytes,
        "steady_state_bytes": device.steady_state_bytes,
        "largest_free_block_bytes": device.at_peak.largest_free_block_bytes,
        "fragmentation": device.at_peak.fragmentation(),
        "peak": device.peak,
        "autotune_range": summary.autotune_range.as_ref().map(|it| it.to_json(device, summary.fits())),
    })
}

fn programs(summary: &RunSummary) -> Value {
    let attribution = |it| attribution(it, &summary.programs);
    json!({
        "step": summary.step().map(|step| &step.name),
        "step_evidence": summary.step_evidence,
        "replicated": summary.program_memory.as_ref().map_or(&[][..], |program| &program.replicated),
        "undivided_batch": summary.program_memory.as_ref().and_then(|it| it.undivided_batch.as_ref()),
        "replicated_arrays": summary.attribution.as_ref().and_then(|it| it.replicated.as_ref()),
        "communicators": summary.communicators,
        "step_search": summary.step_search,
        "plan": summary.plan(),
        "owners": owners(summary.attribution.as_ref()),
        "attribution": summary.attribution.as_ref().map(attribution),
        "cause": Cause::of(summary).as_ref().map(cause),
        "step_time": summary.step_time.as_ref().map(step_time),
        "programs": summary.programs.iter().map(program).collect::<Vec<_>>(),
        "compilations": summary.compilations,
        "compiler_warnings": summary.compiler_warnings,
        "scratch": summary.scratch,
        "measured_edits": summary.measured_edits,
    })
}

fn step_time(time: &ProgramTime) -> Value {
    json!({
        "low_us": time.low_us,
        "model_us": time.model_us,
        "xla_us": time.xla_us,
        "unknown_share": time.unknown_share(),
        "comparable": time.unknown_share() <= MAX_UNKNOWN_SHARE,
        "calibrated": time.calibrated,
        "operations": time.operations,
    })
}

fn program(program: &ProgramSummary) -> Value {
    let sizes = &program.sizes;
    json!({
        "name": program.name,
        "calls": program.calls,
        "argument_bytes": sizes.argument_bytes,
        "output_bytes": sizes.output_bytes,
        "alias_bytes": sizes.alias_bytes,
        "temp_bytes": sizes.temp_bytes,
        "variant_temp_bytes": program.variant_temp_bytes,
        "constant_bytes": sizes.constant_bytes,
        "code_bytes": sizes.code_bytes,
        "devices": program.devices,
        "compilations": program.compilations,
        "loaded": program.loaded,
        "compile_attempt": program.compile_attempt,
        "site": program.site,
    })
}

fn failures(summary: &RunSummary) -> Value {
    // A process that is alone is listed, too.
    let own = [summary.as_process()];
    let processes = if summary.processes.is_empty() { &own[..] } else { &summary.processes };
    json!({
        "oom": summary.out_of_memory().map(out_of_memory),
        "oom_count": summary.failure_count,
        "abort": summary.abort,
        "no_context": summary.no_context,
        "total_range": summary.total_range.map(|range| json!({
            "max_total_memory_bytes": range.max_total_memory_bytes,
            "limit_bytes": range.limit_bytes,
            "fits": range.is_met,
        })),
        "processes": processes,
        "devices": summary.devices.iter().map(|it| device(summary, it)).collect::<Vec<_>>(),
    })
}

pub(super) fn out_of_memory(failure: &AllocationFailure) -> Value {
    let moment = &failure.context;
    json!({
        "requested_bytes": moment.requested_bytes,
        "remaining_bytes": failure.remaining_bytes,
        "needed_bytes": failure.needed_bytes(),
        "program": moment.program,
        "message": failure.message,
        "device": failure.device,
        "call": moment.call,
        "purpose": moment.purpose,
        "event": moment.event,
        "in_use_bytes": failure.pool.in_use_bytes,
        "free_bytes": failure.pool.free_bytes,
        "largest_free_block_bytes": failure.pool.largest_free_block_bytes,
        "growth_bytes": failure.growth_bytes,
        "available_bytes": failure.available_bytes(),
        "used_by_others_bytes": failure.used_by_others_bytes,
        "short_bytes": failure.short_bytes(),
        "fragmented": failure.fragmented(),
        "fatal": failure.fatal,
        "recovered": failure.recovered,
    })
}

fn device(summary: &RunSummary, device: &DeviceSummary) -> Value {
    json!({
        "device": device.device,
        "gpu": summary.header.gpu_of(device.device),
        "limit_bytes": device.limit_bytes,
        "capacity_bytes": device.capacity_bytes,
        "pool_bytes": device.pool_bytes,
        "peak_bytes": device.peak_bytes,
        "used_by_others_bytes": device.used_by_others_bytes,
        "variant_peak_bytes": summary.autotune_range.as_ref().and_then(|it| it.variant_peak(device)),
        "peak": device.peak,
        "steady_state_bytes": device.steady_state_bytes,
        "free_at_peak_bytes": device.at_peak.free_bytes,
        "largest_free_block_bytes": device.at_peak.largest_free_block_bytes,
        "fragmentation": device.at_peak.fragmentation(),
        "in_use_at_end_bytes": device.at_end.in_use_bytes,
        "free_at_end_bytes": device.at_end.free_bytes,
        "largest_free_block_at_end_bytes": device.at_end.largest_free_block_bytes,
        "fragmentation_at_end": device.at_end.fragmentation(),
        "outside_bytes": device.outside_bytes,
        "oom_count": device.failures,
    })
}

fn findings(summary: &RunSummary) -> Value {
    let likely_cause = |site| json!({"kind": "placeholder_read", "site": site});
    let growth = |is_training| {
        let leaks = summary.leaks.iter().filter(|leak| leak.is_training == is_training);
        leaks.collect::<Vec<_>>()
    };
    json!({
        "leaks": growth(true),
        "growth": growth(false),
        "array_holders": summary.array_holders,
        "likely_cause": summary.likely_cause().map(likely_cause),
        "not_computed": summary.not_computed,
    })
}

fn run(summary: &RunSummary, caveats: &[String]) -> Value {
    let header = &summary.header;
    let variables = settings::variables(summary).into_iter().map(|variable| {
        json!({
            "name": variable.name,
            "value": variable.value,
            "set_by_vramfit": variable.set_by_vramfit,
            "effect": variable.effect,
        })
    });
    json!({
        "context_bytes_estimate": header.run.context_bytes,
        "executions": summary.executions,
        "evaluated": summary.evaluated,
        "settings": {
            "allocator": header.allocator,
            "memory_fraction": header.memory_fraction,
            "requested_limit_bytes": header.run.requested_limit_bytes,
            "preallocate": header.preallocate,
            "spatial_partitioning": header.spatial_partitioning,
            "occupied_bytes": header.run.occupied_bytes,
            "autotune_results": header.run.autotune_results.is_some(),
            "variables": variables.collect::<Vec<_>>(),
            "findings": settings::findings(summary),
        },
        "allocator_model": summary.allocator_model,
        "caveats": caveats,
        "command": header.command,
    })
}
