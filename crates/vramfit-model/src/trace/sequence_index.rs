//! Where sequences of events were written before, so that a repeat is found while it begins.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::event::Event;
use super::history::{History, WINDOW};

/// How many events in a row must be found again before a match begins. Fewer would start
/// matches by accident, each of which costs a record; more would make every epoch longer.
pub(super) const SEQUENCE_LENGTH: usize = 4;
/// Entries of the table; a lost entry costs bytes, never correctness.
const TABLE_ENTRIES: usize = 1 << 16;

/// The positions behind sequences of [`SEQUENCE_LENGTH`] events.
pub(super) struct SequenceIndex {
    /// By the hash of the sequence; 0 is empty.
    positions: Box<[u64]>,
    /// Hashes of the last events of the history, newest last.
    recent: [u64; SEQUENCE_LENGTH],
}

impl SequenceIndex {
    pub(super) fn new() -> SequenceIndex {
        SequenceIndex {
            positions: vec![0; TABLE_ENTRIES].into_boxed_slice(),
            recent: [0; SEQUENCE_LENGTH],
        }
    }

    /// Enters the sequence of events that ends before `end`, and returns the position behind an equal one
    /// that is near enough to copy from.
    ///
    /// Must be called for each position in turn, since it keeps the hashes of the sequence.
    pub(super) fn register(&mut self, history: &History, end: u64) -> Option<u64> {
        self.index_event(history, end);
        if end < SEQUENCE_LENGTH as u64 {
            return None;
        }
        let mut hasher = FxHasher::default();
        self.recent.hash(&mut hasher);
        // The upper bits are the well-mixed ones of this hash.
        let entry = &mut self.positions[(hasher.finish() >> 48) as usize % TABLE_ENTRIES];
        let found = std::mem::replace(entry, end);
        let is_near = found >= SEQUENCE_LENGTH as u64 && found < end && end - found < WINDOW;
        // The table may hold positions whose events were removed, or of another sequence.
        let is_equal = is_near
            && (1..=SEQUENCE_LENGTH as u64)
                .all(|back| history.event_at(found - back) == history.event_at(end - back));
        is_equal.then_some(found)
    }

    /// Shifts the hash of the event before `end` into the sequence.
    pub(super) fn index_event(&mut self, history: &History, end: u64) {
        self.recent.rotate_left(1);
        self.recent[SEQUENCE_LENGTH - 1] = hash(history.event_at(end - 1));
    }
}

fn hash(event: &Event) -> u64 {
    let mut hasher = FxHasher::default();
    event.hash(&mut hasher);
    hasher.finish()
}
