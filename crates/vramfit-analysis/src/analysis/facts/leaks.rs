//! What grows from step to step and never shrinks: in every step, or in every tenth one.
//!
//! The state right before a call of the step is compared with that before the call before. Which
//! program is the step is only known at the end, so a provisional one goes along: the program with the
//! strongest evidence for being the step, and of equals the one that has needed most so far. Of equals
//! it is changed only for one that needs twice as much, or two programs that need the same would take
//! turns and no step would ever end. A run without a training has growth from call to call of a program.

mod created;
mod report;

use rustc_hash::FxHashMap;

pub use self::created::CreatedArrays;
pub use self::report::{LeakSummary, section};
use crate::analysis::arrays::{AllocationSites, NO_PROGRAM, Sum};
use crate::analysis::programs::{Evidence, Programs};
use crate::replay::Block;
use crate::trace::{Purpose, TextId};

/// Steps in a row that a candidate must have grown in, up to the last one.
const MIN_STEPS: u64 = 3;
/// The same for what has become larger but not more: one array that is replaced by a longer one may
/// do so a few times by chance.
const MIN_STEPS_OF_ONE_ARRAY: u64 = 8;
/// How often a candidate must have grown at equal distances of more than one step.
const MIN_EQUAL_DISTANCES: u64 = 4;
/// Calls in a row of a program that is no training step: weights are made one after another, too.
const MIN_CALLS: u64 = 5;

/// The execution of a program, as [`Leaks`] needs it.
#[derive(Clone, Copy, Debug)]
pub(in crate::analysis) struct ProgramCall {
    pub(in crate::analysis) entry: usize,
    /// Whether no other program is more likely to be the step.
    pub(in crate::analysis) is_likeliest: bool,
    /// Whether its calls may be the steps of a training.
    pub(in crate::analysis) is_of_training: bool,
    /// Whether the program was not executed before.
    pub(in crate::analysis) is_first: bool,
    /// The event that begins it.
    pub(in crate::analysis) event: u64,
}

/// Follows every group of arrays from step to step.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Leaks {
    step_program: Option<usize>,
    is_training: bool,
    /// Calls of it so far.
    steps: u64,
    /// Whether another program was executed for the first time after the last of them.
    has_new_program: bool,
    sites: Vec<SiteGrowth>,
    /// Groups that changed since the last step.
    changed: Vec<u32>,
}

/// A group of arrays of one allocation site: now, at the last step, and where its growth began.
#[derive(Clone, Copy, Debug, Default)]
struct SiteGrowth {
    now: Sum,
    before: Sum,
    began: Sum,
    /// The event of the step at which it began.
    began_at: u64,
    /// How often it had grown in a row, at equal distances.
    growths: u64,
    /// The step of the last of them; 0 as long as there is none.
    last: u64,
    /// The distance in steps; 0 as long as it has grown once.
    distance: u64,
    is_changed: bool,
}

/// Arrays of one line and program that grew in each of the last steps.
#[derive(Clone, Copy, Debug)]
struct LeakCandidate {
    device: u32,
    site: TextId,
    entry: u32,
    purpose: Purpose,
    /// In every how many steps.
    every_steps: u64,
    /// In how many steps in a row.
    steps: u64,
    /// By how many arrays in all of them.
    arrays: u64,
    /// By how many bytes requested in all of them.
    bytes: u64,
    /// By how many bytes of the pool in all of them.
    allocated_bytes: u64,
    /// The event of the first of them.
    began_at: u64,
}

/// What grew, and what was created that grew in number only as long as it was being created.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Growth {
    pub(in crate::analysis) leaks: Vec<LeakSummary>,
    pub(in crate::analysis) created: Vec<CreatedArrays>,
}

impl Leaks {
    /// Records that a block was allocated.
    #[inline]
    pub(in crate::analysis) fn on_allocated(&mut self, block: &Block) {
        let group = self.changed(block.owner);
        group.now.add(1, block.requested_bytes, block.allocated_bytes);
    }

    /// Records that a block was freed.
    #[inline]
    pub(in crate::analysis) fn on_freed(&mut self, block: &Block) {
        let now = &mut self.changed(block.owner).now;
        now.count = now.count.saturating_sub(1);
        now.bytes = now.bytes.saturating_sub(block.requested_bytes);
        now.allocated_bytes = now.allocated_bytes.saturating_sub(block.allocated_bytes);
    }

    #[inline]
    fn changed(&mut self, owner: u32) -> &mut SiteGrowth {
        let index = owner as usize;
        if index >= self.sites.len() {
            self.sites.resize(index + 1, SiteGrowth::default());
        }
        let group = &mut self.sites[index];
        if !group.is_changed {
            group.is_changed = true;
            self.changed.push(owner);
        }
        group
    }

    /// Notes that a program is about to be executed. `rank` returns the evidence for a program, and what it has needed.
    pub(in crate::analysis) fn on_execution(
        &mut self,
        call: ProgramCall,
        rank: impl Fn(usize) -> (Evidence, u128),
    ) {
        let change = match self.step_program {
            None => true,
            Some(known) if known == call.entry => false,
            Some(_) if self.is_training && !call.is_of_training => false,
            Some(known) => {
                let (new, old) = (rank(call.entry), rank(known));
                call.is_likeliest && (new.0 > old.0 || new.1 >= old.1.saturating_mul(2))
            }
        };
        if change {
            self.step_program = Some(call.entry);
            self.is_training = call.is_of_training;
            self.forget_steps();
        }
        if self.step_program == Some(call.entry) {
            // That it is the step of a training is known some calls later.
            self.is_training |= call.is_of_training;
            self.on_step(call.event);
        } else {
            self.has_new_program |= call.is_first;
        }
    }

    /// Counts steps anew, those of another program. What a group had in the steps before is of other steps: also the
    /// number of the last step that it grew in, which may be higher than any that is counted now.
    fn forget_steps(&mut self) {
        self.steps = 0;
        for group in &mut self.sites {
            *group = SiteGrowth { now: group.now, before: group.now, ..SiteGrowth::default() };
        }
        self.changed.clear();
    }

    fn on_step(&mut self, event: u64) {
        self.steps += 1;
        self.has_new_program = false;
        for owner in self.changed.drain(..) {
            let group = &mut self.sites[owner as usize];
            group.is_changed = false;
            // Before the first step there was no step to grow in.
            if self.steps > 1 {
                group.on_step(self.steps, event);
            }
            group.before = group.now;
        }
    }

    /// Returns what grew in each of the last steps, and what was created, the most bytes a step first.
    pub(in crate::analysis) fn summary(
        &self,
        sites: &AllocationSites,
        programs: &Programs,
        text: &dyn Fn(TextId) -> String,
    ) -> Growth {
        let name = |entry| text(programs.name(entry));
        // What was made before a program that came new was made for it: weights, for a forward pass.
        let is_counted = self.is_training || !self.has_new_program;
        let Some(step_program) = self.step_program.filter(|_| is_counted) else {
            return Growth::default();
        };
        // The steps of a training have one name; other calls that are as many may have that of the program that leaves
        // something.
        let is_as_often = |own: &usize| programs.calls(*own) == programs.calls(step_program);
        let candidates = self.candidates(sites).into_iter();
        let (created, grown): (Vec<_>, Vec<_>) = candidates
            .partition(|candidate| !self.is_training && candidate.is_created(programs, text));
        let leaks = grown.into_iter().map(|candidate| {
            let own = (candidate.entry != NO_PROGRAM).then_some(candidate.entry as usize);
            let counted = own.filter(|own| !self.is_training && is_as_often(own));
            LeakSummary {
                device: candidate.device,
                bytes_per_step: candidate.bytes_per_step(),
                site: text(candidate.site),
                program: own.map(name),
                purpose: candidate.purpose,
                step: name(counted.unwrap_or(step_program)),
                is_training: self.is_training,
                every_steps: candidate.every_steps,
                steps: candidate.steps,
                arrays: candidate.arrays,
                bytes: candidate.bytes,
                allocated_bytes: candidate.allocated_bytes,
            }
        });
        Growth {
            leaks: leaks.collect(),
            created: created.iter().map(|candidate| candidate.created(programs, text)).collect(),
        }
    }

    /// Returns what grew in each of the last steps, the most bytes a step first.
    fn candidates(&self, sites: &AllocationSites) -> Vec<LeakCandidate> {
        let mut found: FxHashMap<_, LeakCandidate> = FxHashMap::default();
        for (group, owner) in self.sites.iter().zip(0..) {
            let arrays = group.before.count.saturating_sub(group.began.count);
            let least = match (arrays >= group.growths, group.distance) {
                (false, _) => MIN_STEPS_OF_ONE_ARRAY,
                (true, 0 | 1) => MIN_STEPS,
                (true, _) => MIN_EQUAL_DISTANCES,
            };
            let least = if self.is_training { least } else { least.max(MIN_CALLS - 1) };
            if group.growths < least || self.steps - group.last >= group.distance {
                continue;
            }
            let site = sites.get(owner);
            let (now, began) = (group.before, group.began);
            let candidate = LeakCandidate {
                device: site.device,
                site: site.site,
                entry: site.entry,
                purpose: site.purpose,
                every_steps: group.distance,
                steps: group.growths,
                arrays,
                bytes: now.bytes.saturating_sub(began.bytes),
                allocated_bytes: now.allocated_bytes.saturating_sub(began.allocated_bytes),
                began_at: group.began_at,
            };
            let key = (site.device, site.site, site.entry, site.purpose, group.distance);
            let whole = found.entry(key);
            whole.and_modify(|whole| whole.merge(&candidate)).or_insert(candidate);
        }
        let mut found: Vec<_> = found.into_values().collect();
        found.sort_by_key(|candidate| {
            let site = (candidate.device, candidate.site, candidate.entry, candidate.purpose as u8);
            (std::cmp::Reverse(candidate.bytes_per_step()), site, candidate.every_steps)
        });
        found
    }
}

impl SiteGrowth {
    /// Compares what is there with what was there at the step before.
    fn on_step(&mut self, step: u64, event: u64) {
        let (now, before) = (self.now, self.before);
        if now.bytes < before.bytes || now.count < before.count {
            self.growths = 0;
        } else if now.bytes > before.bytes {
            let distance = step - self.last;
            let goes_on = self.growths == 1 || (self.growths > 1 && self.distance == distance);
            if goes_on {
                (self.growths, self.distance) = (self.growths + 1, distance);
            } else {
                (self.growths, self.distance) = (1, 0);
                (self.began, self.began_at) = (before, event);
            }
            self.last = step;
        }
    }
}

impl LeakCandidate {
    fn bytes_per_step(&self) -> u64 {
        self.bytes / (self.steps * self.every_steps).max(1)
    }

    /// Takes another output of the same call in. The shorter growth is what is sure of both.
    fn merge(&mut self, other: &LeakCandidate) {
        let steps = self.steps.min(other.steps);
        let of = |all: u64, in_steps: u64| {
            (u128::from(all) * u128::from(steps) / u128::from(in_steps.max(1))) as u64
        };
        let sum = |ours, theirs| of(ours, self.steps).saturating_add(of(theirs, other.steps));
        *self = LeakCandidate {
            began_at: self.began_at.min(other.began_at),
            arrays: sum(self.arrays, other.arrays),
            bytes: sum(self.bytes, other.bytes),
            allocated_bytes: sum(self.allocated_bytes, other.allocated_bytes),
            steps,
            ..*self
        };
    }
}

#[cfg(test)]
mod tests;
