//! The points of one pass of a repeat, added for many passes at once.

use super::Timeline;
use crate::analysis::series::TimelinePoint;

impl Timeline {
    /// Notes the points of one pass again for so many passes after it, each `period` events later than
    /// the one before, as [`Timeline::add`] would. Costs little, however many passes there are.
    pub(in crate::analysis) fn repeat(&mut self, pass: &[TimelinePoint], period: u64, passes: u64) {
        let Some(first) = pass.first() else { return };
        let extremes = Extremes::of(pass);
        let count = pass.len() as u64;
        // Points are numbered from the first one of the pass itself on.
        let end = count * (passes + 1);
        let at = |number: u64| {
            let mut point = pass[(number % count) as usize];
            point.event += number / count * period;
            point
        };
        let mut next = count;
        while next < end {
            let point = at(next);
            let number = point.event >> self.shift;
            let Some(last) = self.intervals.last_mut().filter(|last| last.number == number) else {
                self.push(point);
                next += 1;
                continue;
            };
            // The points that fall into the interval, too.
            let behind = (number + 1) << self.shift;
            let whole = (behind - 1 - first.event) / period;
            let rest = pass.partition_point(|point| point.event + whole * period < behind);
            let until = (whole * count + rest as u64).min(end);
            let here = match until - next >= count {
                true => extremes.of_cycle((next % count) as usize, next).map(at),
                false => {
                    let mut ends = [point, point];
                    for point in (next..until).map(at) {
                        let level = point.state.in_use_bytes;
                        if level < ends[0].state.in_use_bytes {
                            ends[0] = point;
                        }
                        if level > ends[1].state.in_use_bytes {
                            ends[1] = point;
                        }
                    }
                    ends
                }
            };
            if here[0].state.in_use_bytes < last.low.state.in_use_bytes {
                last.low = here[0];
            }
            if here[1].state.in_use_bytes > last.high.state.in_use_bytes {
                last.high = here[1];
            }
            next = until;
        }
    }
}

/// The first lowest and the first highest point before each place of a pass, and from it on.
struct Extremes {
    before: Vec<[(u64, usize); 2]>,
    from: Vec<[(u64, usize); 2]>,
}

impl Extremes {
    fn of(pass: &[TimelinePoint]) -> Extremes {
        let level = |index: usize| pass[index].state.in_use_bytes;
        let mut before = Vec::with_capacity(pass.len());
        let mut ends = [(level(0), 0); 2];
        for index in 0..pass.len() {
            before.push(ends);
            if level(index) < ends[0].0 {
                ends[0] = (level(index), index);
            }
            if level(index) > ends[1].0 {
                ends[1] = (level(index), index);
            }
        }
        let mut from = vec![ends; pass.len()];
        let mut ends = [(u64::MAX, 0), (0, 0)];
        for index in (0..pass.len()).rev() {
            // Of equal levels the earlier one counts.
            if level(index) <= ends[0].0 {
                ends[0] = (level(index), index);
            }
            if level(index) >= ends[1].0 {
                ends[1] = (level(index), index);
            }
            from[index] = ends;
        }
        Extremes { before, from }
    }

    /// Returns the numbers of the lowest and the highest of as many points as a pass has, from the one
    /// numbered `number` on, which is at `place` in its pass.
    fn of_cycle(&self, place: usize, number: u64) -> [u64; 2] {
        let count = self.from.len() as u64;
        let pass = number - place as u64;
        let [low, high] = self.from[place];
        let [next_low, next_high] = self.before[place];
        let pick = |this: (u64, usize), next: (u64, usize), is_better: bool| match is_better {
            true => pass + count + next.1 as u64,
            false => pass + this.1 as u64,
        };
        // At the first place nothing is before, and what stands there is equal to the first point.
        [pick(low, next_low, next_low.0 < low.0), pick(high, next_high, next_high.0 > high.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::series::TimelinePoint;
    use crate::replay::PoolState;

    fn point(event: u64, in_use_bytes: u64) -> TimelinePoint {
        let state = PoolState { in_use_bytes, ..PoolState::default() };
        TimelinePoint { event, state }
    }

    #[test]
    fn repeated_points_are_those_noted_one_by_one() {
        // A linear congruential generator: any sequence does, and a fixed one can be debugged.
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..400 {
            let period = 1 + random(if round % 3 == 0 { 3000 } else { 12 });
            let begin = random(5000);
            let mut pass = Vec::new();
            for event in begin..begin + period {
                if random(4) > 0 {
                    pass.push(point(event, random(6)));
                }
            }
            let most = 1 << (2 + random(10));
            let passes = random(most);
            let devices = [1, 40, 5000][random(3) as usize];
            let mut quick = Timeline::new(devices);
            for event in 0..begin {
                let level = random(9);
                quick.add(event, level, || point(event, level).state);
            }
            let mut slow = quick.clone();
            for point in &pass {
                quick.add(point.event, point.state.in_use_bytes, || point.state);
            }
            quick.repeat(&pass, period, passes);
            for number in 0..=passes {
                for point in &pass {
                    let event = point.event + number * period;
                    slow.add(event, point.state.in_use_bytes, || point.state);
                }
            }
            assert_eq!(
                quick.points(std::iter::empty()),
                slow.points(std::iter::empty()),
                "round {round}: {} points in {period} events, {passes} times",
                pass.len()
            );
        }
    }
}
