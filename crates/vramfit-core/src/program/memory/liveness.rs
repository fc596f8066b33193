//! When each value of the temporary block is needed: the compiler's own record of how it planned the
//! heap, read as intervals.
//!
//! XLA simulates the heap over the whole schedule, bodies of loops included at the place of the
//! loop: a value is allocated, shares the place of another one (what goes into a loop, what comes
//! out of each round, what comes out at the end), and is freed after its last use. The event that
//! frees a value names the instruction that *made* it; when it was freed is told by its place in
//! the order. A value may share the place of one that was freed long before, as the copy of a
//! buffer does that went to the host and comes back; what lies there in between is another's. Values that are in the block but not in the record (tables of pointers) are there
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

/// Values of one place, which may be given up and taken again.
struct Shared {
    /// The tenancy that is the latest there.
    tenancy: usize,
    /// How many of its values are needed still.
    needed: u32,
}

/// Reads the record of one heap.
pub(super) fn course(trace: &HeapSimulatorTrace) -> Course {
    let mut course = Course::default();
    let mut places: Vec<Shared> = Vec::new();
    // From each value to its place, and whether it is needed still.
    let mut values: FxHashMap<i64, (usize, bool)> = FxHashMap::default();
    let mut freed_since = true;
    for event in &trace.events {
        match event.kind {
            ALLOCATE | SHARE => {
                let now = course.moment(event, freed_since);
                freed_since = false;
                let shared = values.get(&event.share_with_canonical_id);
                let place = match shared {
                    Some((place, _)) if event.kind == SHARE => *place,
                    _ => {
                        let tenancy = course.begin(now);
                        places.push(Shared { tenancy, needed: 0 });
                        places.len() - 1
                    }
                };
                let at = &mut places[place];
                let gap = now > course.tenancies[at.tenancy].end.saturating_add(1);
                if at.needed == 0 && gap {
                    // In between, something else may have been there.
                    at.tenancy = course.begin(now);
                }
                at.needed += 1;
                course.tenancies[at.tenancy].values.push(event.buffer_id);
                values.insert(event.buffer_id, (place, true));
            }
            FREE => {
                freed_since = true;
                let now = course.moments.len().saturating_sub(1) as u32;
                if let Some((place, still)) = values.get_mut(&event.buffer_id)
                    && std::mem::take(still)
                {
                    let at = &mut places[*place];
                    at.needed -= 1;
                    course.tenancies[at.tenancy].end = now;
                }
            }
            _ => {}
        }
    }
    // What was never freed is needed to the end.
    let last = course.moments.len().saturating_sub(1) as u32;
    for at in places.iter().filter(|at| at.needed > 0) {
        course.tenancies[at.tenancy].end = last;
    }
    course
}

impl Course {
    /// Begins a tenancy and returns its index.
    fn begin(&mut self, now: u32) -> usize {
        self.tenancies.push(Tenancy {
            values: Vec::new(),
            start: now,
            end: now,
        });
        self.tenancies.len() - 1
    }

    /// Returns the moment of an event that begins something, which is a new one when another
    /// instruction is at work, or when something was freed since.
    fn moment(&mut self, event: &HeapEvent, freed_since: bool) -> u32 {
        if freed_since || self.moments.last() != Some(&event.instruction_name) {
            self.moments.push(event.instruction_name.clone());
        }
        self.moments.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course_of(events: &[(i32, i64, &str, i64)]) -> Course {
        let events = events.iter().map(|(kind, id, name, shared)| HeapEvent {
            kind: *kind,
            buffer_id: *id,
            instruction_name: (*name).to_owned(),
            share_with_canonical_id: *shared,
        });
        course(&HeapSimulatorTrace {
            events: events.collect(),
        })
    }

    fn tenancies(course: &Course) -> Vec<(&[i64], u32, u32)> {
        let each = course.tenancies.iter();
        each.map(|one| (one.values.as_slice(), one.start, one.end))
            .collect()
    }

    #[test]
    fn values_that_share_a_place_are_one_tenancy() {
        let course = course_of(&[
            (ALLOCATE, 1, "a", 0),
            (ALLOCATE, 2, "b", 0),
            (SHARE, 3, "c", 1),
            (FREE, 1, "a", 0),
            (FREE, 2, "b", 0),
            (ALLOCATE, 4, "d", 0),
            (FREE, 3, "c", 0),
        ]);
        assert_eq!(course.moments, ["a", "b", "c", "d"]);
        let expected: [(&[i64], u32, u32); 3] = [(&[1, 3], 0, 3), (&[2], 1, 2), (&[4], 3, 3)];
        assert_eq!(tenancies(&course), expected);
    }

    #[test]
    fn a_place_that_was_given_up_in_between_is_two_tenancies() {
        let course = course_of(&[
            (ALLOCATE, 1, "a", 0),
            (FREE, 1, "a", 0),
            (ALLOCATE, 2, "b", 0),
            (FREE, 2, "b", 0),
            (SHARE, 3, "c", 1),
            (SHARE, 4, "d", 1),
        ]);
        let expected: [(&[i64], u32, u32); 3] = [(&[1], 0, 0), (&[2], 1, 1), (&[3, 4], 2, 3)];
        assert_eq!(tenancies(&course), expected);
    }

    #[test]
    fn what_a_record_must_not_hold_is_survived() {
        let course = course_of(&[
            (FREE, 9, "", 0),
            (SHARE, 1, "a", 77),
            (ALLOCATE, 1, "b", 0),
            (FREE, 1, "a", 0),
            (FREE, 1, "a", 0),
            (5, 1, "e", 0),
            (SHARE, 2, "c", 2),
        ]);
        // The first place of value 1 is never given up.
        let expected: [(&[i64], u32, u32); 3] = [(&[1], 0, 2), (&[1], 1, 1), (&[2], 2, 2)];
        assert_eq!(tenancies(&course), expected);
    }
}
