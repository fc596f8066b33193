//! How full each pool was over the run, in a bounded number of points.
//!
//! The run is divided into intervals of equally many events. Each keeps the lowest and the highest
//! state in it; when there are too many intervals, each two become one. So one pass and a fixed
//! amount of memory do for a run of any length, and the highest state of all is never lost.

use super::series::TimelinePoint;
use crate::replay::PoolState;

/// Points of a device's timeline at most, when there are few devices.
const MAX_POINTS: usize = 2048;
/// Points of all devices together.
const MAX_POINTS_IN_ALL: usize = 1 << 16;
/// Points of a device at least, however many devices there are.
const MIN_POINTS: usize = 64;

/// The timeline of one device, as it grows.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// An interval has two to the power of this many events.
    shift: u32,
    intervals: Vec<Interval>,
    max_intervals: usize,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    number: u64,
    low: TimelinePoint,
    high: TimelinePoint,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline::new(1)
    }
}

impl Timeline {
    /// Prepares the timeline of one of this many devices.
    pub(super) fn new(devices: usize) -> Timeline {
        let share = MAX_POINTS_IN_ALL / devices.max(1);
        Timeline {
            shift: 0,
            intervals: Vec::new(),
            max_intervals: share.clamp(MIN_POINTS, MAX_POINTS) / 2,
        }
    }

    /// Notes the level after an event; `state` is asked for the rest where it is wanted. Events must
    /// not fall.
    #[inline]
    pub(super) fn add(&mut self, event: u64, in_use: u64, state: impl FnOnce() -> PoolState) {
        let number = event >> self.shift;
        match self.intervals.last_mut() {
            Some(last) if last.number == number => {
                let lower = in_use < last.low.state.in_use_bytes;
                if lower || in_use > last.high.state.in_use_bytes {
                    let state = state();
                    let end = if lower { &mut last.low } else { &mut last.high };
                    *end = TimelinePoint { event, state };
                }
            }
            _ => {
                let state = state();
                self.push(TimelinePoint { event, state });
            }
        }
    }

    fn push(&mut self, point: TimelinePoint) {
        while self.intervals.len() == self.max_intervals {
            self.shift += 1;
            self.downsample();
        }
        let number = point.event >> self.shift;
        let interval = Interval { number, low: point, high: point };
        match self.intervals.last_mut() {
            Some(last) if last.number == number => *last = last.merge(&interval),
            _ => self.intervals.push(interval),
        }
    }

    /// Joins intervals that have the same number now.
    fn downsample(&mut self) {
        let mut kept: usize = 0;
        for index in 0..self.intervals.len() {
            let mut interval = self.intervals[index];
            interval.number >>= 1;
            match kept.checked_sub(1) {
                Some(last) if self.intervals[last].number == interval.number => {
                    self.intervals[last] = self.intervals[last].merge(&interval);
                }
                _ => {
                    self.intervals[kept] = interval;
                    kept += 1;
                }
            }
        }
        self.intervals.truncate(kept);
    }

    /// Returns the points in the order of the run; `more` are added to them.
    pub(super) fn points(&self, more: impl Iterator<Item = TimelinePoint>) -> Vec<TimelinePoint> {
        let ends = self.intervals.iter();
        let ends = ends.flat_map(|interval| [interval.low, interval.high]);
        let mut points: Vec<_> = ends.chain(more).collect();
        // A stable sort: where a request was refused, its state is the later one.
        points.sort_by_key(|point| point.event);
        points.dedup();
        points
    }
}

impl Interval {
    /// Returns both as one; of equal ends the earlier stays.
    fn merge(&self, later: &Interval) -> Interval {
        let low = later.low.state.in_use_bytes < self.low.state.in_use_bytes;
        let high = later.high.state.in_use_bytes > self.high.state.in_use_bytes;
        Interval {
            number: self.number,
            low: if low { later.low } else { self.low },
            high: if high { later.high } else { self.high },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(in_use_bytes: u64) -> PoolState {
        PoolState { in_use_bytes, ..PoolState::default() }
    }

    /// A level that goes up and down: any sequence does, and a fixed one can be debugged.
    fn levels(count: u64) -> impl Iterator<Item = u64> {
        let mut seed = 1u64;
        (0..count).map(move |_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 44
        })
    }

    fn timeline(count: u64) -> Timeline {
        let mut timeline = Timeline::new(1);
        for (event, level) in (0..).zip(levels(count)) {
            timeline.add(event, level, || state(level));
        }
        timeline
    }

    #[test]
    fn a_short_run_is_kept_whole() {
        let points = timeline(1000).points(std::iter::empty());
        let kept: Vec<_> = points.iter().map(|point| point.state.in_use_bytes).collect();
        assert_eq!(kept, levels(1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_run_keeps_the_ends_of_every_interval() {
        for count in [1025, 5_000, 100_000] {
            let timeline = timeline(count);
            let all: Vec<_> = levels(count).collect();
            let points = timeline.points(std::iter::empty());
            assert!(points.len() <= MAX_POINTS, "{}", points.len());
            assert!(points.len() > MAX_POINTS / 4, "{}", points.len());
            for interval in all.chunks(1 << timeline.shift) {
                for end in [interval.iter().min(), interval.iter().max()] {
                    let end = end.copied().expect("no interval is empty");
                    assert!(points.iter().any(|point| point.state == state(end)), "{end}");
                }
            }
            for point in points {
                assert_eq!(all[point.event as usize], point.state.in_use_bytes);
            }
        }
    }

    #[test]
    fn many_devices_share_the_room() {
        let max_intervals = |devices| Timeline::new(devices).max_intervals * 2;
        assert_eq!(max_intervals(0), MAX_POINTS);
        assert_eq!(max_intervals(32), MAX_POINTS);
        assert_eq!(max_intervals(128), 512);
        assert_eq!(max_intervals(1 << 20), MIN_POINTS);
    }
}
