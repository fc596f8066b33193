//! The last events of a trace, which a `repeat` record copies from.
//!
//! Writer and reader keep the same history, or the trace would not come back as it was written.
//! Events lie here in relative form (a `Free` says how many allocations back), because only
//! then two equal steps are equal.

use super::event::Event;

/// How far back a repeat may reach, in events of the history.
pub(super) const WINDOW: u64 = 1 << 16;

/// How many events a repeat adds to the history at most: its last ones.
///
/// A bound keeps what came before a long repeat within reach: the evaluation at the end of each
/// epoch is found again although the epoch has more events than [`WINDOW`]. It must be large
/// enough that a loop inside a loop (accumulated gradients, then an update) is kept whole, or the
/// outer loop would never be one repeat.
pub(super) const KEPT_OF_REPEAT: u64 = 1 << 14;

/// Slots of the ring. Twice the window, so that appending a repeat never overwrites its source.
const SLOTS: u64 = 2 * WINDOW;

/// A ring of the last events. Positions count from the first event and never wrap.
#[derive(Debug, Default)]
pub(super) struct History {
    ring: Vec<Event>,
    len: u64,
}

impl History {
    /// Returns how many events were ever added: the position of the next one.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the first position that is still there.
    pub(super) fn oldest(&self) -> u64 {
        self.len.saturating_sub(SLOTS)
    }

    /// Returns the event at a position from [`History::oldest`] to below [`History::len`].
    #[inline]
    pub(super) fn event_at(&self, position: u64) -> &Event {
        &self.ring[(position % SLOTS) as usize]
    }

    pub(super) fn push(&mut self, event: Event) {
        let slot = (self.len % SLOTS) as usize;
        if slot == self.ring.len() {
            self.ring.push(event);
        } else {
            self.ring[slot] = event;
        }
        self.len += 1;
    }

    /// Removes the last `count` events, which the caller has just pushed.
    pub(super) fn truncate_by(&mut self, count: u64) {
        self.len -= count;
    }

    /// Returns the position that event number `index` of a repeat at `distance` is copied from.
    #[inline]
    pub(super) fn copy_source(&self, distance: u64, index: u64) -> u64 {
        self.len - distance + index % distance
    }

    /// Adds a finished repeat and returns how many events that added.
    pub(super) fn push_repeat(&mut self, distance: u64, count: u64) -> u64 {
        let kept = count.min(KEPT_OF_REPEAT);
        let start = self.len;
        for index in count - kept..count {
            let event = *self.event_at(start - distance + index % distance);
            self.push(event);
        }
        kept
    }
}

/// Returns the event in relative form, or `None` when it frees what was never allocated.
pub(super) fn relative(event: &Event, allocations: u64) -> Option<Event> {
    event.renumbered(|number| allocations.checked_sub(number).filter(|back| *back > 0))
}

/// Returns `true` if `event` equals `earlier`, which is in relative form.
#[inline]
pub(super) fn repeats(event: &Event, earlier: &Event, allocations: u64) -> bool {
    match (event, earlier) {
        (Event::Free { allocation }, Event::Free { allocation: back }) => {
            allocations.checked_sub(*allocation) == Some(*back)
        }
        (Event::Unread { .. } | Event::FreeAborts { .. } | Event::Argument { .. }, earlier) => {
            relative(event, allocations) == Some(*earlier)
        }
        (event, earlier) => event == earlier,
    }
}
