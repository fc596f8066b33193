//! What `vramfit replay --json` prints.

use serde_json::{Value, json};
use vramfit_base::JSON_SCHEMA;

use super::dryrun::out_of_memory;
use crate::analysis::{Comparison, RunSummary};

pub(in crate::report) fn replay(comparison: &Comparison, caveats: &[String]) -> Value {
    let before = comparison.before.as_ref();
    json!({
        "schema": JSON_SCHEMA,
        "fits": comparison.fits(),
        "before": before.map(|before| side(before, before.fits())),
        "after": side(&comparison.after, comparison.fits()),
        "newly_granted": comparison.newly_granted,
        "ends_at_failure": comparison.ends_at_refusal,
        "notes": comparison.notes,
        "caveats": caveats,
        "command": comparison.after.header.command,
    })
}

fn side(summary: &RunSummary, fits: Option<bool>) -> Value {
    let header = &summary.header;
    let device = summary.critical_device();
    let at_peak = device.map(|device| device.at_peak).unwrap_or_default();
    json!({
        "fits": fits,
        "gpu": header.gpu().name,
        "gpu_count": header.devices,
        "total_memory_bytes": header.total_memory_bytes(),
        "allocator": header.allocator,
        "memory_fraction": header.memory_fraction,
        "preallocate": header.preallocate,
        "occupied_bytes": header.run.occupied_bytes,
        "limit_bytes": device.and_then(|device| device.limit_bytes),
        "capacity_bytes": device.map(|device| device.capacity_bytes),
        "pool_bytes": device.and_then(|device| device.pool_bytes),
        "peak_bytes": device.map_or(0, |device| device.peak_bytes),
        "peak": device.and_then(|device| device.peak.as_ref()),
        "largest_free_block_bytes": at_peak.largest_free_block_bytes,
        "fragmentation": at_peak.fragmentation(),
        "oom": summary.out_of_memory().map(out_of_memory),
        "oom_count": summary.failure_count,
        "abort": summary.abort,
        "allocator_model": summary.allocator_model,
        "executions": summary.executions,
        "events": summary.events,
    })
}
