//! What `vramfit diff --json` prints. Keys are only ever added within a schema.

use serde::Serialize;

use super::integer;
use crate::diff::{Contrast, Difference, Group, Need, Run};

/// Version of the object; it changes when a key changes its meaning or goes away.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    gap_bytes: i64,
    changed_bytes: u64,
    named_bytes: u64,
    a: Side<'a>,
    b: Side<'a>,
    owners: Vec<Owner>,
    changes: Vec<Change<'a>>,
    contrasts: &'a [Contrast],
    programs_only_in_a: &'a [String],
    programs_only_in_b: &'a [String],
    not_covered: &'a [String],
}

#[derive(Serialize)]
struct Side<'a> {
    total_bytes: u64,
    total_is: Need,
    fits: Option<bool>,
    gpu: &'a str,
    gpu_count: u32,
    total_memory_bytes: u64,
    limit_bytes: Option<u64>,
    jax: &'a str,
    plugin: &'a str,
    allocator: &'a str,
    memory_fraction: f64,
    preallocate: bool,
    occupied_bytes: u64,
    program: Option<&'a str>,
    executions: u64,
    command: &'a [String],
}

#[derive(Serialize)]
struct Owner {
    owner: &'static str,
    a_bytes: u64,
    b_bytes: u64,
    change_bytes: i64,
}

#[derive(Serialize)]
struct Change<'a> {
    change_bytes: i64,
    a: Option<Part<'a>>,
    b: Option<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    owner: &'static str,
    path: &'a str,
    site: &'a str,
    shape: &'a str,
    made_by: &'a str,
    parts: u64,
    count: u64,
    bytes: u64,
}

pub(super) fn record(difference: &Difference, not_covered: &[String]) -> serde_json::Value {
    let (changed, named) = difference.explained_bytes();
    let most = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    let owners = difference.owners.iter().map(|owner| Owner {
        owner: owner.kind.id(),
        a_bytes: owner.a_bytes,
        b_bytes: owner.b_bytes,
        change_bytes: integer(owner.bytes()),
    });
    let changes = difference.changes.iter().map(|change| Change {
        change_bytes: integer(change.bytes()),
        a: change.a.as_ref().map(part),
        b: change.b.as_ref().map(part),
    });
    let record = Record {
        schema: SCHEMA,
        gap_bytes: integer(difference.gap_bytes()),
        changed_bytes: most(changed),
        named_bytes: most(named),
        a: side(&difference.a),
        b: side(&difference.b),
        owners: owners.collect(),
        changes: changes.collect(),
        contrasts: &difference.contrasts,
        programs_only_in_a: &difference.programs_only_in_a,
        programs_only_in_b: &difference.programs_only_in_b,
        not_covered,
    };
    serde_json::to_value(record).expect("the keys are texts and no map is in it")
}

fn side(run: &Run) -> Side<'_> {
    let header = &run.header;
    Side {
        total_bytes: run.total_bytes,
        total_is: run.need,
        fits: run.fits,
        gpu: &header.gpu,
        gpu_count: header.devices,
        total_memory_bytes: header.total_memory_bytes,
        limit_bytes: run.limit_bytes,
        jax: &header.jax,
        plugin: &header.plugin,
        allocator: &header.allocator,
        memory_fraction: header.memory_fraction,
        preallocate: header.preallocate,
        occupied_bytes: header.occupied_bytes,
        program: Some(run.program.as_str()).filter(|name| !name.is_empty()),
        executions: run.executions,
        command: &header.command,
    }
}

fn part(group: &Group) -> Part<'_> {
    let largest = &group.largest;
    Part {
        owner: largest.kind.id(),
        path: &largest.path,
        site: &largest.site,
        shape: &largest.shape,
        made_by: &largest.made_by,
        parts: group.parts,
        count: group.count,
        bytes: group.bytes,
    }
}
