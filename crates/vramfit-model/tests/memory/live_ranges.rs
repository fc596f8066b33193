//! Live bytes at each moment, found again by brute force.

use std::collections::{BTreeMap, BTreeSet};

use vramfit_model::program::memory::Owner;
use vramfit_model::program::proto::{AssignedProto, BufferAllocationProto, HeapSimulatorTrace};

use super::recorded::{Recorded, all};

const FREE: i32 = 1;

/// Returns the temporary block.
fn block(recorded: &Recorded) -> Option<&BufferAllocationProto> {
    let allocations = recorded.assignment.buffer_allocations.iter();
    let temporary = allocations.filter(|one| {
        !one.is_entry_computation_parameter
            && !one.maybe_live_out
            && !one.is_constant
            && !one.is_thread_local
            && one.color != 5
            && one.size > 0
    });
    let blocks: Vec<_> = temporary.collect();
    assert!(blocks.len() <= 1, "{}: several blocks", recorded.name);
    blocks.first().copied()
}

/// Returns the record of the heap that a block is.
fn heap<'a>(recorded: &'a Recorded, block: &BufferAllocationProto) -> &'a HeapSimulatorTrace {
    let ids: BTreeSet<i64> = block.assigned.iter().map(|one| one.logical_buffer_id).collect();
    let traces = recorded.assignment.heap_simulator_traces.iter();
    let mut here = traces.filter(|trace| {
        let mut events = trace.events.iter();
        events.any(|event| ids.contains(&event.buffer_id))
    });
    let found = here.next().expect("a heap for the block");
    assert!(here.next().is_none(), "{}: two heaps", recorded.name);
    found
}

/// Returns how many bytes are covered by at least one of the values.
fn union<'a>(values: impl Iterator<Item = &'a AssignedProto>) -> u64 {
    let mut places: Vec<(i64, i64)> =
        values.map(|one| (one.offset, one.offset + one.size)).collect();
    places.sort_unstable();
    let (mut covered, mut sum) = (0, 0);
    for (start, end) in places {
        sum += (end - start.max(covered)).max(0);
        covered = covered.max(end);
    }
    sum as u64
}

/// Returns the live bytes just before each time something is freed or another instruction begins
/// something, and at the end.
fn levels(recorded: &Recorded, block: &BufferAllocationProto) -> Vec<u64> {
    let places: BTreeMap<i64, &AssignedProto> =
        block.assigned.iter().map(|one| (one.logical_buffer_id, one)).collect();
    let heap = heap(recorded, block);
    let told: BTreeSet<i64> = heap.events.iter().map(|event| event.buffer_id).collect();
    // What the record does not name is there all the time.
    let mut live: BTreeSet<i64> = places.keys().filter(|id| !told.contains(id)).copied().collect();
    let mut levels = Vec::new();
    let mut open: Option<&str> = None;
    for event in &heap.events {
        let level =
            |live: &BTreeSet<i64>| union(live.iter().filter_map(|id| places.get(id).copied()));
        if event.kind == FREE {
            if open.take().is_some() {
                levels.push(level(&live));
            }
            assert!(live.remove(&event.buffer_id), "freed but never begun");
        } else {
            if open.is_some_and(|name| name != event.instruction_name) {
                levels.push(level(&live));
            }
            open = Some(&event.instruction_name);
            live.insert(event.buffer_id);
        }
    }
    if open.is_some() {
        levels.push(union(live.iter().filter_map(|id| places.get(id).copied())));
    }
    levels
}

#[test]
fn live_bytes_are_those_of_the_heap_at_every_moment() {
    let mut moments = 0;
    for recorded in all() {
        let memory = recorded.memory();
        let Some(block) = block(recorded) else {
            assert_eq!(memory.temp_bytes, 0, "{}", recorded.name);
            continue;
        };
        let expected = levels(recorded, block);
        assert_eq!(memory.live_bytes, expected, "{}", recorded.name);
        assert_eq!(memory.instructions.len(), expected.len(), "{}", recorded.name);
        moments += expected.len();
    }
    assert!(moments > 400, "only {moments} moments were compared");
}

#[test]
fn tenants_that_live_at_once_never_overlap() {
    for recorded in all() {
        let memory = recorded.memory();
        let Some(block) = block(recorded) else {
            continue;
        };
        let number = recorded
            .assignment
            .buffer_allocations
            .iter()
            .position(|one| std::ptr::eq(one, block))
            .expect("it is one of them") as u32;
        let tenants: Vec<_> = memory
            .buffers
            .iter()
            .filter(|buffer| buffer.allocation == number && buffer.bytes > 0)
            .collect();
        for (at, one) in tenants.iter().enumerate() {
            assert!(one.offset + one.bytes <= memory.temp_bytes, "{}", recorded.name);
            assert_ne!(one.owner, Owner::Padding, "{}", recorded.name);
            for other in &tenants[at + 1..] {
                let together = one.start <= other.end && other.start <= one.end;
                let overlap = one.offset < other.offset + other.bytes
                    && other.offset < one.offset + one.bytes;
                assert!(!(together && overlap), "{}: {one:?} and {other:?}", recorded.name);
            }
        }
    }
}

#[test]
fn what_is_reported_of_the_fullest_moment_is_what_is_live_then() {
    for recorded in all() {
        let memory = recorded.memory();
        let Some(block) = block(recorded) else {
            continue;
        };
        let inside: u64 = memory
            .buffers
            .iter()
            .filter(|buffer| {
                let allocation =
                    &recorded.assignment.buffer_allocations[buffer.allocation as usize];
                std::ptr::eq(allocation, block)
            })
            .map(|buffer| buffer.peak_bytes)
            .sum();
        let highest = levels(recorded, block).into_iter().max().unwrap_or(0);
        assert_eq!(inside, highest, "{}", recorded.name);
    }
}
