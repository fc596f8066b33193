//! What grows from step to step and never shrinks: in every step, or in every tenth one.
//!
//! The state right before a call of the step is compared with that before the call before. Which
//! program is the step is only known at the end, so a provisional one goes along: the program with the
//! strongest evidence for being the step, and of equals the one that has needed most so far. Of equals
//! it is changed only for one that needs twice as much, or two programs that need the same would take
//! turns and no step would ever end. A run without a training has growth from call to call of a program.

use rustc_hash::FxHashMap;

use serde::Serialize;

use crate::analysis::arrays::{AllocationSites, NO_PROGRAM, Sum};
use crate::analysis::programs::{Evidence, Programs};
use crate::bytes::Bytes;
use crate::replay::Block;
use crate::section::Section;
use crate::section::phrases::{line_or_unknown, more_in_json};
use crate::trace::{Purpose, TextId};

/// Leaks that a report lists.
const MAX_SHOWN: usize = 5;

/// Steps in a row that a candidate must have grown in, up to the last one.
const MIN_STEPS: u64 = 3;
/// The same for what has become larger but not more: one array that is replaced by a longer one may
/// do so a few times by chance.
const MIN_STEPS_OF_ONE_ARRAY: u64 = 8;
/// How often a candidate must have grown at equal distances of more than one step.
const MIN_EQUAL_DISTANCES: u64 = 4;
/// Calls in a row of a program that is no training step: weights are made one after another, too.
const MIN_CALLS: u64 = 5;

/// Arrays that grow in number or size from step to step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakSummary {
    /// On which device.
    pub device: u32,
    /// The bytes asked for in one step: exact where all steps grew alike, else their mean, rounded down.
    pub bytes_per_step: u64,
    /// The line that makes them, or that calls the program which does; empty if not known.
    pub site: String,
    /// The program that makes them; `None` where no program does.
    pub program: Option<String>,
    /// What they are made as.
    pub purpose: Purpose,
    /// The program whose calls are the steps.
    pub step: String,
    /// Whether that is the step of a training, as far as one can know: else it is growth and no leak.
    #[serde(skip)]
    pub is_training: bool,
    /// In every how many steps they grew.
    pub every_steps: u64,
    /// In how many steps in a row they grew so, up to the last.
    pub steps: u64,
    /// By how many arrays in these steps.
    pub arrays: u64,
    /// By how many bytes, as they were asked for, in these steps.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// By how much they took more of the pool in these steps, rounding included.
    pub allocated_bytes: u64,
}

impl LeakSummary {
    /// Returns by how many bytes of the pool they grow in a step, on average.
    pub fn allocated_bytes_per_step(&self) -> u64 {
        self.allocated_bytes / (self.steps * self.every_steps).max(1)
    }

    /// Returns the word for what is counted.
    pub fn unit(&self) -> &'static str {
        if self.is_training { "steps" } else { "calls" }
    }

    /// Returns by how much they grow when, as `64.0 MiB more in every step`.
    pub fn describe_growth(&self) -> String {
        let bytes = Bytes(self.bytes / self.steps.max(1));
        match (self.every_steps, self.is_training) {
            (1, true) => format!("{bytes} more in every step"),
            (1, false) => format!("{bytes} more in every call of `{}`", self.step),
            (steps, true) => format!("{bytes} more every {steps} steps"),
            (calls, false) => format!("{bytes} more every {calls} calls of `{}`", self.step),
        }
    }
}

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
    /// How often it had grown in a row, at equal distances.
    growths: u64,
    /// The step of the last of them.
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
            self.steps = 0;
            for group in &mut self.sites {
                group.before = group.now;
                (group.growths, group.is_changed) = (0, false);
            }
            self.changed.clear();
        }
        if self.step_program == Some(call.entry) {
            // That it is the step of a training is known some calls later.
            self.is_training |= call.is_of_training;
            self.on_step();
        } else {
            self.has_new_program |= call.is_first;
        }
    }

    fn on_step(&mut self) {
        self.steps += 1;
        self.has_new_program = false;
        for owner in self.changed.drain(..) {
            let group = &mut self.sites[owner as usize];
            group.is_changed = false;
            // Before the first step there was no step to grow in.
            if self.steps > 1 {
                group.on_step(self.steps);
            }
            group.before = group.now;
        }
    }

    /// Returns what grew in each of the last steps, the most bytes a step first.
    pub(in crate::analysis) fn summary(
        &self,
        sites: &AllocationSites,
        programs: &Programs,
        text: &dyn Fn(TextId) -> String,
    ) -> Vec<LeakSummary> {
        let name = |entry| text(programs.name(entry));
        // What was made before a program that came new was made for it: weights, for a forward pass.
        let is_counted = self.is_training || !self.has_new_program;
        let Some(step_program) = self.step_program.filter(|_| is_counted) else {
            return Vec::new();
        };
        // The steps of a training have one name; other calls that are as many may have that of the program that leaves
        // something.
        let is_as_often = |own: &usize| programs.calls(*own) == programs.calls(step_program);
        let candidates = self.candidates(sites).into_iter();
        let summaries = candidates.map(|candidate| {
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
        summaries.collect()
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
    fn on_step(&mut self, step: u64) {
        let (now, before) = (self.now, self.before);
        if now.bytes < before.bytes || now.count < before.count {
            self.growths = 0;
        } else if now.bytes > before.bytes {
            let distance = step - self.last;
            let goes_on = self.growths == 1 || (self.growths > 1 && self.distance == distance);
            if goes_on {
                (self.growths, self.distance) = (self.growths + 1, distance);
            } else {
                (self.growths, self.distance, self.began) = (1, 0, before);
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
            arrays: sum(self.arrays, other.arrays),
            bytes: sum(self.bytes, other.bytes),
            allocated_bytes: sum(self.allocated_bytes, other.allocated_bytes),
            steps,
            ..*self
        };
    }
}

/// Shows what grew. `spare_bytes` returns what a device has to spare, if the run fits.
pub fn section(leaks: &[LeakSummary], spare_bytes: impl Fn(u32) -> Option<u64>) -> Option<Section> {
    let device = leaks.first()?.device;
    let here: Vec<_> = leaks.iter().filter(|leak| leak.device == device).collect();
    let mut points: Vec<_> = here.iter().copied().take(MAX_SHOWN).map(point).collect();
    points.extend(more_in_json(here.len().saturating_sub(MAX_SHOWN)));
    if here.len() < leaks.len() {
        points.push(format!(
            "only device {device} is shown; leaks of other devices are in the JSON output"
        ));
    }
    let per_step: u64 = here.iter().map(|leak| leak.allocated_bytes_per_step()).sum();
    let steps = spare_bytes(device).and_then(|spare| spare.checked_div(per_step));
    let unit = here[0].unit();
    let title = match here[0].is_training {
        true => "possible memory leaks: memory that grows from step to step",
        false => "memory that grows from call to call",
    };
    points.extend(
        steps.map(|steps| format!("at this rate, memory runs out after about {steps} more {unit}")),
    );
    Section::list(title, points)
}

fn point(leak: &LeakSummary) -> String {
    let line = line_or_unknown(&leak.site);
    let purpose = leak.purpose.label();
    let origin = match &leak.program {
        Some(program) => format!("{purpose} of `{program}`"),
        None => purpose.to_owned(),
    };
    let is_mean = !leak.bytes.is_multiple_of(leak.steps.max(1));
    let mean = if is_mean { ", on average" } else { "" };
    let arrays = match leak.arrays {
        0 => "with no more arrays".to_owned(),
        1 => "1 array in total".to_owned(),
        count => format!("{count} arrays in total"),
    };
    let (growth, times) = (leak.describe_growth(), leak.steps);
    format!("{growth}{mean}: {line}, {origin}; {times} times in a row up to the end, {arrays}")
}
