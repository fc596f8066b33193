//! What is counted on one device before and after a pass.

use crate::analysis::attribution::Arguments;
use crate::analysis::devices::Device;
use crate::analysis::running_minimum::RunningMinimum;
use crate::analysis::series::TimelinePoint;
use crate::analysis::snapshot::LiveSnapshot;
use crate::analysis::timeline::Timeline;
use crate::replay::{Block, Period, PoolLevel};

/// One device at one moment.
pub(super) struct DeviceSnapshot {
    level: PoolLevel,
    peak: u64,
    reported_peak: u64,
    blocks_at_peak: LiveSnapshot,
    arguments_at_peak: Arguments,
    blocks_at_refusal: LiveSnapshot,
    blocks_at_step: LiveSnapshot,
    low_water: RunningMinimum,
    outside: u64,
    refusals: u64,
    card_refused: bool,
    regions: usize,
}

impl Device {
    /// Returns what later events depend on.
    pub(super) fn snapshot(&self) -> DeviceSnapshot {
        let Device {
            number: _,
            level,
            peak,
            reported_peak,
            // Both belong to the peak.
            moment: _,
            at_peak: _,
            blocks_at_peak,
            arguments_at_peak,
            blocks_at_refusal,
            blocks_at_step,
            low_water,
            // Points are noted while a pass is watched, and noted again for those that are skipped.
            timeline: _,
            watched: _,
            outside,
            refusals,
            card_refused,
            given,
        } = self;
        DeviceSnapshot {
            level: *level,
            peak: *peak,
            reported_peak: *reported_peak,
            blocks_at_peak: blocks_at_peak.clone(),
            arguments_at_peak: arguments_at_peak.clone(),
            blocks_at_refusal: blocks_at_refusal.clone(),
            blocks_at_step: blocks_at_step.clone(),
            low_water: low_water.clone(),
            outside: *outside,
            refusals: *refusals,
            card_refused: *card_refused,
            regions: given.len(),
        }
    }

    /// Says whether each further pass does the same. `led` says whether the step was called in it.
    pub(super) fn repeats(&self, before: &DeviceSnapshot, period: &Period, led: bool) -> bool {
        self.level == before.level
            && self.peak == before.peak
            && self.reported_peak == before.reported_peak
            && self.blocks_at_peak == before.blocks_at_peak
            && self.arguments_at_peak == before.arguments_at_peak
            && self.blocks_at_refusal == before.blocks_at_refusal
            && match led {
                true => before.blocks_at_step.repeats(&self.blocks_at_step, period),
                false => self.blocks_at_step == before.blocks_at_step,
            }
            && before.low_water.repeats(&self.low_water, period)
            && self.outside == before.outside
            && self.card_refused == before.card_refused
            && self.given.len() == before.regions
    }

    /// Lets so many more passes be over.
    pub(super) fn skip(
        &mut self,
        before: &DeviceSnapshot,
        period: &Period,
        points: &[TimelinePoint],
        led: bool,
        passes: u64,
    ) {
        self.refusals += passes * (self.refusals - before.refusals);
        self.low_water.skip(period, passes);
        if led {
            self.blocks_at_step.skip(period, passes);
        }
        self.timeline.repeat(points, period.events, passes);
    }
}

impl LiveSnapshot {
    /// Says whether a moment that every pass makes anew is the same after the pass, moved along.
    fn repeats(&self, after: &LiveSnapshot, period: &Period) -> bool {
        after.next == self.next + period.allocations
            && self.gone.len() == after.gone.len()
            && self.gone.iter().zip(&after.gone).all(|(before, after)| {
                let same = Block {
                    number: after.number,
                    ..*before
                };
                // They were freed in the pass, so they are other ones in each.
                same == *after && after.number == before.number + period.allocations
            })
    }

    fn skip(&mut self, period: &Period, passes: u64) {
        let by = passes * period.allocations;
        self.next += by;
        self.gone.iter_mut().for_each(|block| block.number += by);
    }
}

impl RunningMinimum {
    fn repeats(&self, after: &RunningMinimum, period: &Period) -> bool {
        self.stairs.len() == after.stairs.len()
            && self
                .stairs
                .iter()
                .zip(&after.stairs)
                .all(|(before, after)| {
                    before.1 == after.1 && period.repeats_time(before.0, after.0)
                })
    }

    fn skip(&mut self, period: &Period, passes: u64) {
        for (time, _) in &mut self.stairs {
            period.move_time(time, passes);
        }
    }
}

impl Timeline {
    /// Notes the points of one pass again for so many passes after it, each `period` events later than
    /// the one before, as [`Timeline::note`] would. Costs little, however many passes there are.
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
            let stretch = point.event >> self.shift;
            let Some(last) = self
                .stretches
                .last_mut()
                .filter(|last| last.number == stretch)
            else {
                self.begin(point);
                next += 1;
                continue;
            };
            // The points that fall into the stretch, too.
            let behind = (stretch + 1) << self.shift;
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
        [
            pick(low, next_low, next_low.0 < low.0),
            pick(high, next_high, next_high.0 > high.0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::series::TimelinePoint;
    use crate::replay::PoolState;

    fn point(event: u64, in_use_bytes: u64) -> TimelinePoint {
        let state = PoolState {
            in_use_bytes,
            ..PoolState::default()
        };
        TimelinePoint { event, state }
    }

    #[test]
    fn repeated_points_are_those_noted_one_by_one() {
        // A linear congruential generator: any sequence does, and a fixed one can be debugged.
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
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
                quick.note(event, level, || point(event, level).state);
            }
            let mut slow = quick.clone();
            for point in &pass {
                quick.note(point.event, point.state.in_use_bytes, || point.state);
            }
            quick.repeat(&pass, period, passes);
            for number in 0..=passes {
                for point in &pass {
                    let event = point.event + number * period;
                    slow.note(event, point.state.in_use_bytes, || point.state);
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
