//! What grows from step to step and never shrinks.
//!
//! The state right before a call of the step is compared with that before the call before. Which
//! program is the step is only known at the end, so a clock goes along: the program with the
//! strongest evidence for being the step, and of equals the one that has needed most so far. Of equals
//! it is changed only for one that needs twice as much, or two programs that need the same would take
//! turns and no step would ever end. Without a step there is nothing to leak in.

use rustc_hash::FxHashMap;

use super::arrays::AllocationSites;
use super::programs::Evidence;
use crate::replay::Block;
use crate::trace::{Purpose, TextId};

/// Steps in a entry that a suspect must have grown in, up to the last one.
const MIN_STEPS: u64 = 3;
/// The same for what has become larger but not more: one array that is replaced by a longer one may
/// do so a few times by chance.
const MIN_STEPS_OF_ONE_ARRAY: u64 = 8;

/// Follows every group of arrays from step to step.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaks {
    pub(super) clock: Option<usize>,
    /// Calls of the clock seen so far.
    pub(super) ticks: u64,
    pub(super) groups: Vec<Group>,
    /// Groups that changed since the last tick.
    pub(super) changed: Vec<u32>,
}

/// A group of arrays by the same maker: now, at the last tick, and where its growth began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) now: SiteTotal,
    pub(super) before: SiteTotal,
    pub(super) began: SiteTotal,
    /// Ticks in a entry at which it had grown.
    pub(super) steps: u64,
    /// The last of them.
    pub(super) last: u64,
    pub(super) is_changed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SiteTotal {
    count: u64,
    /// Requested.
    bytes: u64,
    /// Taken of the pool.
    held_bytes: u64,
}

/// Arrays of one line and program that grew in each of the last steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeakCandidate {
    pub(super) device: u32,
    pub(super) site: TextId,
    pub(super) entry: u32,
    pub(super) purpose: Purpose,
    /// In how many steps in a entry.
    pub(super) steps: u64,
    /// By how many arrays in all of them.
    pub(super) arrays: u64,
    /// By how many bytes requested in all of them.
    pub(super) bytes: u64,
    /// By how many bytes of the pool in all of them.
    pub(super) held_bytes: u64,
}

impl Leaks {
    /// Notes that a block came.
    #[inline]
    pub(super) fn allocated(&mut self, block: &Block) {
        let group = self.changed(block.owner);
        group.now.count += 1;
        group.now.bytes = group.now.bytes.saturating_add(block.requested_bytes);
        group.now.held_bytes = group.now.held_bytes.saturating_add(block.held_bytes);
    }

    /// Notes that a block went.
    #[inline]
    pub(super) fn freed(&mut self, block: &Block) {
        let group = self.changed(block.owner);
        group.now.count = group.now.count.saturating_sub(1);
        group.now.bytes = group.now.bytes.saturating_sub(block.requested_bytes);
        group.now.held_bytes = group.now.held_bytes.saturating_sub(block.held_bytes);
    }

    #[inline]
    fn changed(&mut self, owner: u32) -> &mut Group {
        let index = owner as usize;
        if index >= self.groups.len() {
            self.groups.resize(index + 1, Group::default());
        }
        let group = &mut self.groups[index];
        if !group.is_changed {
            group.is_changed = true;
            self.changed.push(owner);
        }
        group
    }

    /// Notes that a step is about to be executed. `leads` says that no other program is more likely
    /// to be the step, and `rank` returns the evidence for a program, and what it has needed.
    pub(super) fn begin(
        &mut self,
        entry: usize,
        leads: bool,
        rank: impl Fn(usize) -> (Evidence, u128),
    ) {
        let other = self.clock.filter(|clock| *clock != entry);
        let change = match other {
            Some(clock) => {
                let (new, old) = (rank(entry), rank(clock));
                leads && (new.0 > old.0 || new.1 >= old.1.saturating_mul(2))
            }
            None => self.clock.is_none(),
        };
        if change {
            self.clock = Some(entry);
            self.ticks = 0;
            for group in &mut self.groups {
                group.before = group.now;
                (group.steps, group.is_changed) = (0, false);
            }
            self.changed.clear();
        }
        if self.clock == Some(entry) {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        for owner in self.changed.drain(..) {
            let group = &mut self.groups[owner as usize];
            let (now, before) = (group.now, group.before);
            // Before the first tick there was no step to grow in.
            let grew = self.ticks > 1 && now.bytes > before.bytes && now.count >= before.count;
            if !grew {
                group.steps = 0;
            } else if group.steps > 0 && group.last + 1 == self.ticks {
                group.steps += 1;
            } else {
                (group.steps, group.began) = (1, before);
            }
            group.last = self.ticks;
            group.before = now;
            group.is_changed = false;
        }
    }

    /// Returns the entry of the program whose calls are the steps; `None` when nothing was executed.
    pub(super) fn clock(&self) -> Option<usize> {
        self.clock
    }

    /// Returns what grew in each of the last steps, the most bytes a step first.
    pub(super) fn suspects(&self, makers: &AllocationSites) -> Vec<LeakCandidate> {
        let mut found: FxHashMap<_, LeakCandidate> = FxHashMap::default();
        for (group, owner) in self.groups.iter().zip(0..) {
            let arrays = group.before.count.saturating_sub(group.began.count);
            let grows = match arrays >= group.steps {
                true => group.steps >= MIN_STEPS,
                false => group.steps >= MIN_STEPS_OF_ONE_ARRAY,
            };
            if !grows || group.last != self.ticks {
                continue;
            }
            let maker = makers.get(owner);
            let (now, began) = (group.before, group.began);
            let suspect = LeakCandidate {
                device: maker.device,
                site: maker.site,
                entry: maker.entry,
                purpose: maker.purpose,
                steps: group.steps,
                arrays,
                bytes: now.bytes.saturating_sub(began.bytes),
                held_bytes: now.held_bytes.saturating_sub(began.held_bytes),
            };
            let key = (maker.device, maker.site, maker.entry, maker.purpose);
            let whole = found.entry(key);
            whole
                .and_modify(|whole| whole.join(&suspect))
                .or_insert(suspect);
        }
        let mut found: Vec<_> = found.into_values().collect();
        found.sort_by_key(|suspect| {
            let a_step = suspect.bytes / suspect.steps.max(1);
            let maker = (
                suspect.device,
                suspect.site,
                suspect.entry,
                suspect.purpose as u8,
            );
            (std::cmp::Reverse(a_step), maker)
        });
        found
    }
}

impl LeakCandidate {
    /// Takes another output of the same call in. The shorter growth is what is sure of both.
    fn join(&mut self, other: &LeakCandidate) {
        let steps = self.steps.min(other.steps);
        let of = |all: u64, in_steps: u64| {
            (u128::from(all) * u128::from(steps) / u128::from(in_steps.max(1))) as u64
        };
        let sum = |ours, theirs| of(ours, self.steps).saturating_add(of(theirs, other.steps));
        *self = LeakCandidate {
            arrays: sum(self.arrays, other.arrays),
            bytes: sum(self.bytes, other.bytes),
            held_bytes: sum(self.held_bytes, other.held_bytes),
            steps,
            ..*self
        };
    }
}
