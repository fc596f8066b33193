//! What `vramfit diff --json` prints.

use serde_json::{Value, json};
use vramfit_base::JSON_SCHEMA;

use crate::diff::{EntryGroup, RunDiff, RunInfo};
use crate::report::diff::to_i64;

pub(in crate::report) fn diff(difference: &RunDiff, caveats: &[String]) -> Value {
    let (changed, located) = difference.explained_bytes();
    let saturate = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    let owners = difference.owners.iter().map(|owner| {
        json!({
            "owner": owner.kind.id(),
            "a_bytes": owner.a_bytes,
            "b_bytes": owner.b_bytes,
            "change_bytes": to_i64(owner.bytes()),
        })
    });
    let changes = difference.changes.iter().map(|change| {
        json!({
            "change_bytes": to_i64(change.bytes()),
            "a": change.a.as_ref().map(group),
            "b": change.b.as_ref().map(group),
        })
    });
    json!({
        "schema": JSON_SCHEMA,
        "difference_bytes": to_i64(difference.gap_bytes()),
        "changed_bytes": saturate(changed),
        "located_bytes": saturate(located),
        "a": run(&difference.a),
        "b": run(&difference.b),
        "owners": owners.collect::<Vec<_>>(),
        "changes": changes.collect::<Vec<_>>(),
        "other_differences": difference.other_differences,
        "programs_only_in_a": difference.programs_only_in_a,
        "programs_only_in_b": difference.programs_only_in_b,
        "caveats": caveats,
    })
}

fn run(run: &RunInfo) -> Value {
    let header = &run.header;
    json!({
        "total_bytes": run.total_bytes,
        "total_kind": run.total_kind,
        "fits": run.fits,
        "gpu": header.gpu().name,
        "gpu_count": header.devices,
        "total_memory_bytes": header.total_memory_bytes(),
        "limit_bytes": run.limit_bytes,
        "jax": header.jax,
        "plugin": header.plugin,
        "allocator": header.allocator,
        "memory_fraction": header.memory_fraction,
        "preallocate": header.preallocate,
        "occupied_bytes": header.run.occupied_bytes,
        "program": Some(&run.program).filter(|name| !name.is_empty()),
        "executions": run.executions,
        "command": header.command,
    })
}

fn group(group: &EntryGroup) -> Value {
    let largest = &group.largest;
    json!({
        "owner": largest.kind.id(),
        "path": largest.path,
        "site": largest.site,
        "shape": largest.shape,
        "producer": largest.made_by,
        "entries": group.parts,
        "count": group.count,
        "bytes": group.bytes,
    })
}
