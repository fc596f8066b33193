//! When each value of the temporary block is needed: the compiler's own record of how it planned the
//! heap, read as intervals.
//!
//! XLA simulates the heap over the whole schedule, bodies of loops included at the place of the
//! loop: a value is allocated, shares the place of another one (what goes into a loop, what comes
//! out of each round, what comes out at the end), and is freed after its last use. The event that
//! frees a value names the instruction that *made* it; when it was freed is told by its place in
//! the order. Values that are in the block but not in the record (tables of pointers) are there
//! all the time.

use rustc_hash::FxHashMap;

use crate::program::wire::{HeapEvent, HeapSimulatorTrace};

const ALLOCATE: i32 = 0;
const FREE: i32 = 1;
const SHARE: i32 = 2;

/// Values that lie at one place one after the other without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tenancy {
    /// Numbers of the values, in the order in which they begin.
    pub(super) values: Vec<i64>,
    /// Index of the moment at which the first begins.
    pub(super) start: u32,
    /// Index of the last moment at which one of them is needed.
    pub(super) end: u32,
}

/// The course of a program, as far as memory is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    /// Names of the instructions that begin something, in order.
    pub(super) moments: Vec<String>,
    pub(super) tenancies: Vec<Tenancy>,
}

/// Reads the record of one heap.
pub(super) fn course(trace: &HeapSimulatorTrace) -> Course {
    let mut course = Course::default();
    // From each value to the tenancy it is part of.
    let mut tenancy_of: FxHashMap<i64, usize> = FxHashMap::default();
    let mut freed_since = true;
    for event in &trace.events {
        match event.kind {
            ALLOCATE | SHARE => {
                let now = course.moment(event, freed_since);
                freed_since = false;
                let shared = (event.kind == SHARE)
                    .then(|| tenancy_of.get(&event.share_with_canonical_id).copied())
                    .flatten();
                let tenancy = shared.unwrap_or_else(|| {
                    course.tenancies.push(Tenancy {
                        start: now,
                        end: now,
                        ..Tenancy::default()
                    });
                    course.tenancies.len() - 1
                });
                course.tenancies[tenancy].values.push(event.buffer_id);
                tenancy_of.insert(event.buffer_id, tenancy);
                // Until something says otherwise it stays to the end.
                course.tenancies[tenancy].end = u32::MAX;
            }
            FREE => {
                freed_since = true;
                let now = course.moments.len().saturating_sub(1) as u32;
                if let Some(&tenancy) = tenancy_of.get(&event.buffer_id) {
                    course.tenancies[tenancy].end = now;
                }
            }
            _ => {}
        }
    }
    course.close(trace);
    course
}

impl Course {
    /// Returns the moment of an event that begins something, which is a new one when another
    /// instruction is at work, or when something was freed since.
    fn moment(&mut self, event: &HeapEvent, freed_since: bool) -> u32 {
        if freed_since || self.moments.last() != Some(&event.instruction_name) {
            self.moments.push(event.instruction_name.clone());
        }
        self.moments.len() as u32 - 1
    }

    /// Ends what was never freed, and what some values were freed of and others not.
    fn close(&mut self, trace: &HeapSimulatorTrace) {
        let mut open: FxHashMap<i64, ()> = FxHashMap::default();
        for event in &trace.events {
            match event.kind {
                ALLOCATE | SHARE => drop(open.insert(event.buffer_id, ())),
                FREE => drop(open.remove(&event.buffer_id)),
                _ => {}
            }
        }
        let last = self.moments.len().saturating_sub(1) as u32;
        for tenancy in &mut self.tenancies {
            if tenancy.end == u32::MAX
                || tenancy.values.iter().any(|value| open.contains_key(value))
            {
                tenancy.end = last;
            }
        }
    }
}
