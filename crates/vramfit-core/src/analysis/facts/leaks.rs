//! What grows from step to step and never shrinks.
//!
//! The state right before a call of the step is compared with that before the call before. Which
//! program is the step is only known at the end, so a provisional one goes along: the program with the
//! strongest evidence for being the step, and of equals the one that has needed most so far. Of equals
//! it is changed only for one that needs twice as much, or two programs that need the same would take
//! turns and no step would ever end. Without a step there is nothing to leak in.

use rustc_hash::FxHashMap;

use serde::Serialize;

use crate::analysis::arrays::{AllocationSites, NO_PROGRAM, Sum};
use crate::analysis::programs::Evidence;
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

/// Arrays that grow in number or size from step to step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakSummary {
    /// On which device.
    pub device: u32,
    /// The bytes asked for in one step: exact where all steps grew alike, else their mean.
    pub bytes_per_step: u64,
    /// The line that makes them, or that calls the program which does; empty if not known.
    pub site: String,
    /// The program that makes them; `None` where no program does.
    pub program: Option<String>,
    /// What they are made as.
    pub purpose: Purpose,
    /// The program whose calls are the steps.
    pub step: String,
    /// In how many steps in a row they grew, up to the last.
    pub steps: u64,
    /// By how many arrays in these steps.
    pub arrays: u64,
    /// By how many bytes, as they were asked for, in these steps.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// By how much they took more of the pool in these steps, rounding included.
    pub allocated_bytes: u64,
}

/// Follows every group of arrays from step to step.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Leaks {
    step_program: Option<usize>,
    /// Calls of it so far.
    steps: u64,
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
    /// Steps in a row in which it had grown.
    steps: u64,
    /// The last of them.
    last: u64,
    is_changed: bool,
}

/// Arrays of one line and program that grew in each of the last steps.
#[derive(Clone, Copy, Debug)]
struct LeakCandidate {
    device: u32,
    site: TextId,
    entry: u32,
    purpose: Purpose,
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

    /// Notes that a step is about to be executed. `is_likeliest` says that no other program is more likely
    /// to be the step, and `rank` returns the evidence for a program, and what it has needed.
    pub(in crate::analysis) fn on_execution(
        &mut self,
        entry: usize,
        is_likeliest: bool,
        rank: impl Fn(usize) -> (Evidence, u128),
    ) {
        let other = self.step_program.filter(|known| *known != entry);
        let change = match other {
            Some(step_program) => {
                let (new, old) = (rank(entry), rank(step_program));
                is_likeliest && (new.0 > old.0 || new.1 >= old.1.saturating_mul(2))
            }
            None => self.step_program.is_none(),
        };
        if change {
            self.step_program = Some(entry);
            self.steps = 0;
            for group in &mut self.sites {
                group.before = group.now;
                (group.steps, group.is_changed) = (0, false);
            }
            self.changed.clear();
        }
        if self.step_program == Some(entry) {
            self.on_step();
        }
    }

    fn on_step(&mut self) {
        self.steps += 1;
        for owner in self.changed.drain(..) {
            let group = &mut self.sites[owner as usize];
            let (now, before) = (group.now, group.before);
            // Before the first step there was no step to grow in.
            let grew = self.steps > 1 && now.bytes > before.bytes && now.count >= before.count;
            if !grew {
                group.steps = 0;
            } else if group.steps > 0 && group.last + 1 == self.steps {
                group.steps += 1;
            } else {
                (group.steps, group.began) = (1, before);
            }
            group.last = self.steps;
            group.before = now;
            group.is_changed = false;
        }
    }

    /// Returns what grew in each of the last steps, the most bytes a step first. `name` returns that of the program of an
    /// entry.
    pub(in crate::analysis) fn summary(
        &self,
        sites: &AllocationSites,
        name: &dyn Fn(usize) -> String,
        text: &dyn Fn(TextId) -> String,
    ) -> Vec<LeakSummary> {
        // Without a step there is nothing to leak in.
        let Some(step_program) = self.step_program else {
            return Vec::new();
        };
        let candidates = self.candidates(sites).into_iter();
        candidates
            .map(|candidate| LeakSummary {
                device: candidate.device,
                bytes_per_step: candidate.bytes / candidate.steps.max(1),
                site: text(candidate.site),
                program: (candidate.entry != NO_PROGRAM).then(|| name(candidate.entry as usize)),
                purpose: candidate.purpose,
                step: name(step_program),
                steps: candidate.steps,
                arrays: candidate.arrays,
                bytes: candidate.bytes,
                allocated_bytes: candidate.allocated_bytes,
            })
            .collect()
    }

    /// Returns what grew in each of the last steps, the most bytes a step first.
    fn candidates(&self, sites: &AllocationSites) -> Vec<LeakCandidate> {
        let mut found: FxHashMap<_, LeakCandidate> = FxHashMap::default();
        for (group, owner) in self.sites.iter().zip(0..) {
            let arrays = group.before.count.saturating_sub(group.began.count);
            let grows = match arrays >= group.steps {
                true => group.steps >= MIN_STEPS,
                false => group.steps >= MIN_STEPS_OF_ONE_ARRAY,
            };
            if !grows || group.last != self.steps {
                continue;
            }
            let site = sites.get(owner);
            let (now, began) = (group.before, group.began);
            let candidate = LeakCandidate {
                device: site.device,
                site: site.site,
                entry: site.entry,
                purpose: site.purpose,
                steps: group.steps,
                arrays,
                bytes: now.bytes.saturating_sub(began.bytes),
                allocated_bytes: now.allocated_bytes.saturating_sub(began.allocated_bytes),
            };
            let key = (site.device, site.site, site.entry, site.purpose);
            let whole = found.entry(key);
            whole.and_modify(|whole| whole.merge(&candidate)).or_insert(candidate);
        }
        let mut found: Vec<_> = found.into_values().collect();
        found.sort_by_key(|candidate| {
            let a_step = candidate.bytes / candidate.steps.max(1);
            let site = (candidate.device, candidate.site, candidate.entry, candidate.purpose as u8);
            (std::cmp::Reverse(a_step), site)
        });
        found
    }
}

impl LeakCandidate {
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
    let per_step: u64 = here.iter().map(|leak| leak.allocated_bytes / leak.steps.max(1)).sum();
    let steps = spare_bytes(device).and_then(|spare| spare.checked_div(per_step));
    points.extend(
        steps.map(|steps| format!("at this rate, memory runs out after about {steps} more steps")),
    );
    Section::list("possible memory leaks: memory that grows in every step", points)
}

fn point(leak: &LeakSummary) -> String {
    let bytes = Bytes(leak.bytes_per_step);
    let line = line_or_unknown(&leak.site);
    let purpose = leak.purpose.label();
    let origin = match &leak.program {
        Some(program) => format!("{purpose} of `{program}`"),
        None => purpose.to_owned(),
    };
    let mean = if leak.bytes.is_multiple_of(leak.steps.max(1)) { "" } else { "on average " };
    let arrays = match leak.arrays {
        0 => "with no more arrays".to_owned(),
        1 => "1 array in total".to_owned(),
        count => format!("{count} arrays in total"),
    };
    let steps = leak.steps;
    format!(
        "grows by {mean}{bytes} per step: {line}, {origin}; in each of the last {steps} steps, {arrays}"
    )
}
