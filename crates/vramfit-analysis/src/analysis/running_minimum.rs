//! The least that a level was since any earlier moment.

/// Remembers just enough of a level's past to tell its minimum since a given time.
///
/// What is kept is the rising staircase of levels that were never undercut since; there are no more
/// of them than allocations alive.
#[derive(Debug, Default)]
pub(super) struct RunningMinimum {
    /// Times and levels, both strictly rising.
    stairs: Vec<(u64, u64)>,
}

impl RunningMinimum {
    /// Notes that the level is `level` from `time` on. Times must not fall.
    pub(super) fn push(&mut self, time: u64, level: u64) {
        while self.stairs.last().is_some_and(|(_, last)| *last >= level) {
            self.stairs.pop();
        }
        self.stairs.push((time, level));
    }

    /// Returns the lowest level noted after `time`, or `None` if none was.
    pub(super) fn lowest_after(&self, time: u64) -> Option<u64> {
        let first = self.stairs.partition_point(|(noted, _)| *noted <= time);
        self.stairs.get(first).map(|(_, level)| *level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_is_that_of_a_plain_search() {
        // A linear congruential generator: any sequence does, and a fixed one can be debugged.
        let mut state = 1u64;
        let mut levels = Vec::new();
        let mut minimum = RunningMinimum::default();
        for time in 0..500u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let level = state >> 56;
            levels.push(level);
            minimum.push(time, level);
            for since in 0..=time {
                let plain = levels[since as usize + 1..].iter().min().copied();
                assert_eq!(minimum.lowest_after(since), plain, "{since}..{time}");
            }
        }
    }
}
