//! When a program was executed, for a bounded number of its calls.

/// Calls that are kept at most.
const MAX_CALLS: usize = 256;

/// Every call of a program at first; with more than [`MAX_CALLS`], every second of them, every fourth and so on.
#[derive(Clone, Debug, Default)]
pub(in crate::analysis) struct CallEvents {
    shift: u32,
    calls: Vec<(u64, u64)>,
}

impl CallEvents {
    /// Adds the call with this number, counted from 1, that begins with this event.
    pub(super) fn add(&mut self, call: u64, event: u64) {
        if !self.keeps(call) {
            return;
        }
        if self.calls.len() == MAX_CALLS {
            self.shift += 1;
            let calls = std::mem::take(&mut self.calls).into_iter();
            self.calls = calls.filter(|(call, _)| self.keeps(*call)).collect();
        }
        if self.keeps(call) {
            self.calls.push((call, event));
        }
    }

    fn keeps(&self, call: u64) -> bool {
        (call - 1) & ((1 << self.shift) - 1) == 0
    }

    /// Returns the event with which the first call began.
    pub(in crate::analysis) fn first(&self) -> Option<u64> {
        self.calls.first().map(|(_, event)| *event)
    }

    /// Returns the calls: their numbers and events.
    pub(in crate::analysis) fn calls(&self) -> &[(u64, u64)] {
        &self.calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_kept_at_equal_distances() {
        let mut events = CallEvents::default();
        for call in 1..=1000 {
            events.add(call, 10 * call);
        }
        let calls = events.calls();
        assert_eq!(calls.len(), 250);
        assert_eq!(calls[..3], [(1, 10), (5, 50), (9, 90)]);
        assert_eq!(events.first(), Some(10));
    }
}
