//! Live ranges of the values in the temporary block, from the compiler's heap simulator trace.
//!
//! XLA simulates the heap over the whole schedule, bodies of loops included at the place of the
//! loop: a value is allocated, shares the place of another one (what goes into a loop, what comes
//! out of each round, what comes out at the end), and is freed after its last use. The event that
//! frees a value names the instruction that *made* it; when it was freed is told by its place in
//! the order. A value may share the place of one that was freed long before, as the copy of a
//! buffer does that went to the host and comes back; what lies there in between is another's. Values
//! that are in the block but not in the trace (tables of pointers) are live all the time.

use rustc_hash::FxHashMap;

use crate::program::proto::{HeapEvent, HeapSimulatorTrace};

const ALLOCATE: i32 = 0;
const FREE: i32 = 1;
const SHARE: i32 = 2;

/// Values that occupy one place one after the other without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LiveRange {
    /// Numbers of the values, in the order in which they begin.
    pub(super) values: Vec<i64>,
    /// The time at which the first starts.
    pub(super) start: u32,
    /// The last time at which one of them is needed.
    pub(super) end: u32,
}

/// The live ranges of a program; a time is an index of `instructions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeapSchedule {
    /// Names of the instructions that start a live range, in order.
    pub(super) instructions: Vec<String>,
    pub(super) live_ranges: Vec<LiveRange>,
}

/// Values of one place, which may be freed and used again.
struct SharedPlace {
    /// The latest live range there.
    live_range: usize,
    /// How many of its values are still needed.
    needed: u32,
}

pub(super) fn read_schedule(trace: &HeapSimulatorTrace) -> HeapSchedule {
    let mut schedule = HeapSchedule::default();
    let mut places: Vec<SharedPlace> = Vec::new();
    // From each value to its place, and whether it is needed still.
    let mut values: FxHashMap<i64, (usize, bool)> = FxHashMap::default();
    let mut freed_since = true;
    for event in &trace.events {
        match event.kind {
            ALLOCATE | SHARE => {
                let now = schedule.advance(event, freed_since);
                freed_since = false;
                let shared = values.get(&event.share_with_canonical_id);
                let place = match shared {
                    Some((place, _)) if event.kind == SHARE => *place,
                    _ => {
                        let live_range = schedule.start(now);
                        places.push(SharedPlace { live_range, needed: 0 });
                        places.len() - 1
                    }
                };
                let at = &mut places[place];
                let gap = now > schedule.live_ranges[at.live_range].end.saturating_add(1);
                if at.needed == 0 && gap {
                    // In between, something else may have been there.
                    at.live_range = schedule.start(now);
                }
                at.needed += 1;
                schedule.live_ranges[at.live_range].values.push(event.buffer_id);
                values.insert(event.buffer_id, (place, true));
            }
            FREE => {
                freed_since = true;
                let now = schedule.instructions.len().saturating_sub(1) as u32;
                if let Some((place, still)) = values.get_mut(&event.buffer_id)
                    && std::mem::take(still)
                {
                    let at = &mut places[*place];
                    at.needed -= 1;
                    schedule.live_ranges[at.live_range].end = now;
                }
            }
            _ => {}
        }
    }
    // What was never freed is needed to the end.
    let last = schedule.instructions.len().saturating_sub(1) as u32;
    for at in places.iter().filter(|at| at.needed > 0) {
        schedule.live_ranges[at.live_range].end = last;
    }
    schedule
}

impl HeapSchedule {
    /// Starts a live range and returns its index.
    fn start(&mut self, now: u32) -> usize {
        self.live_ranges.push(LiveRange { values: Vec::new(), start: now, end: now });
        self.live_ranges.len() - 1
    }

    /// Returns the time of an event that starts a live range: a new one for another instruction, or when
    /// something was freed since.
    fn advance(&mut self, event: &HeapEvent, freed_since: bool) -> u32 {
        if freed_since || self.instructions.last() != Some(&event.instruction_name) {
            self.instructions.push(event.instruction_name.clone());
        }
        self.instructions.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule_of(events: &[(i32, i64, &str, i64)]) -> HeapSchedule {
        let events = events.iter().map(|(kind, id, name, shared)| HeapEvent {
            kind: *kind,
            buffer_id: *id,
            instruction_name: (*name).to_owned(),
            share_with_canonical_id: *shared,
        });
        read_schedule(&HeapSimulatorTrace { events: events.collect() })
    }

    fn live_ranges(schedule: &HeapSchedule) -> Vec<(&[i64], u32, u32)> {
        let each = schedule.live_ranges.iter();
        each.map(|one| (one.values.as_slice(), one.start, one.end)).collect()
    }

    #[test]
    fn values_that_share_a_place_are_one_live_range() {
        let schedule = schedule_of(&[
            (ALLOCATE, 1, "a", 0),
            (ALLOCATE, 2, "b", 0),
            (SHARE, 3, "c", 1),
            (FREE, 1, "a", 0),
            (FREE, 2, "b", 0),
            (ALLOCATE, 4, "d", 0),
            (FREE, 3, "c", 0),
        ]);
        assert_eq!(schedule.instructions, ["a", "b", "c", "d"]);
        let expected: [(&[i64], u32, u32); 3] = [(&[1, 3], 0, 3), (&[2], 1, 2), (&[4], 3, 3)];
        assert_eq!(live_ranges(&schedule), expected);
    }

    #[test]
    fn a_place_that_was_freed_in_between_has_two_live_ranges() {
        let schedule = schedule_of(&[
            (ALLOCATE, 1, "a", 0),
            (FREE, 1, "a", 0),
            (ALLOCATE, 2, "b", 0),
            (FREE, 2, "b", 0),
            (SHARE, 3, "c", 1),
            (SHARE, 4, "d", 1),
        ]);
        let expected: [(&[i64], u32, u32); 3] = [(&[1], 0, 0), (&[2], 1, 1), (&[3, 4], 2, 3)];
        assert_eq!(live_ranges(&schedule), expected);
    }

    #[test]
    fn invalid_events_are_ignored() {
        let schedule = schedule_of(&[
            (FREE, 9, "", 0),
            (SHARE, 1, "a", 77),
            (ALLOCATE, 1, "b", 0),
            (FREE, 1, "a", 0),
            (FREE, 1, "a", 0),
            (5, 1, "e", 0),
            (SHARE, 2, "c", 2),
        ]);
        // The first place of value 1 is never freed.
        let expected: [(&[i64], u32, u32); 3] = [(&[1], 0, 2), (&[1], 1, 1), (&[2], 2, 2)];
        assert_eq!(live_ranges(&schedule), expected);
    }
}
