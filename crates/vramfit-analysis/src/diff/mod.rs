//! Two runs side by side: what makes one need more memory than the other.
//!
//! Compared are the [`Attribution`] of both: whose the bytes are at the moment that decides. Their parts
//! are put in pairs ([`pairs`]); the lines of the programs may have moved in between ([`lines`]).
//! Every part of either run is in exactly one [`EntryDelta`], so all changes add up to the gap.
//!
//! | file | content |
//! | --- | --- |
//! | `pairs.rs` | which entries of two attributions are the same thing |
//! | `lines.rs` | which source lines of two versions of a program are the same |
//! | `settings_diff.rs` | GPU, settings, versions and command of both runs |

mod lines;
mod pairs;
mod settings_diff;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::analysis::{Attribution, AttributionEntry, EntryKind, RunSummary};

pub use settings_diff::{RunInfo, SettingDiff, TotalKind};

/// What makes run B need more or less memory than run A.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunDiff {
    /// The run that is compared with.
    pub a: RunInfo,
    /// The run that is compared.
    pub b: RunInfo,
    /// The gap by owner, the largest change first.
    pub owners: Vec<OwnerDelta>,
    /// What takes other bytes than before, the largest change first.
    pub changes: Vec<EntryDelta>,
    /// What else is different about the runs.
    pub other_differences: Vec<SettingDiff>,
    /// Names of the programs that only A compiled, in alphabetical order.
    pub programs_only_in_a: Vec<String>,
    /// Names of the programs that only B compiled.
    pub programs_only_in_b: Vec<String>,
}

/// What one kind of owner has in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerDelta {
    /// The kind of owner.
    pub kind: EntryKind,
    /// Its bytes in A.
    pub a_bytes: u64,
    /// Its bytes in B.
    pub b_bytes: u64,
}

/// The same thing in both runs, or what only one of them has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryDelta {
    /// What it is in A; `None` for what only B has.
    pub a: Option<EntryGroup>,
    /// What it is in B; `None` for what only A has. At least one of them is there.
    pub b: Option<EntryGroup>,
}

/// Parts of one run that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryGroup {
    /// The largest of them; it lends its names to all.
    pub largest: AttributionEntry,
    /// How many parts.
    pub parts: u64,
    /// How many buffers and arrays.
    pub count: u64,
    /// How much they take.
    pub bytes: u64,
}

/// Compares two runs.
pub fn diff_runs(a: &RunSummary, b: &RunSummary) -> RunDiff {
    let parts = |answer: &RunSummary| answer.attribution.clone().unwrap_or_default();
    let (held_a, held_b) = (parts(a), parts(b));
    let (a_run, b_run) = (RunInfo::of(a), RunInfo::of(b));
    let names = |answer: &RunSummary| -> BTreeSet<String> {
        let programs = answer.programs.iter();
        programs.map(|program| program.name.clone()).collect()
    };
    let (in_a, in_b) = (names(a), names(b));
    RunDiff {
        other_differences: settings_diff::other_differences(&a_run, &b_run),
        a: a_run,
        b: b_run,
        owners: owners(&held_a, &held_b),
        changes: changes(&held_a.parts, &held_b.parts),
        programs_only_in_a: in_a.difference(&in_b).cloned().collect(),
        programs_only_in_b: in_b.difference(&in_a).cloned().collect(),
    }
}

impl RunDiff {
    /// Returns how many bytes B needs more than A, at the moments that decide.
    pub fn gap_bytes(&self) -> i128 {
        change(self.a.total_bytes, self.b.total_bytes)
    }

    /// Returns the bytes that changed hands, whatever their sign: those of all changes, and those of
    /// changes with a path or a line.
    pub fn explained_bytes(&self) -> (u128, u128) {
        let size = |change: &EntryDelta| change.bytes().unsigned_abs();
        let named = self.changes.iter().filter(|change| change.is_named());
        (self.changes.iter().map(size).sum(), named.map(size).sum())
    }

    /// Returns `true` if B needs more than `bytes` more than A; `None` where that cannot be told, since a
    /// run was cut short and would have needed no one knows how much.
    pub fn grows_by_more_than(&self, bytes: u64) -> Option<bool> {
        let above = self.gap_bytes() > i128::from(bytes);
        let known = match above {
            // What was not seen of A can only make the gap smaller; of B, larger.
            true => self.a.total_kind == TotalKind::Peak,
            false => self.b.total_kind == TotalKind::Peak,
        };
        known.then_some(above)
    }
}

impl OwnerDelta {
    /// Returns how many bytes B has more.
    pub fn bytes(&self) -> i128 {
        change(self.a_bytes, self.b_bytes)
    }
}

impl EntryDelta {
    /// Returns how many bytes B has more.
    pub fn bytes(&self) -> i128 {
        let bytes = |side: &Option<EntryGroup>| side.as_ref().map_or(0, |group| group.bytes);
        change(bytes(&self.a), bytes(&self.b))
    }

    /// Returns its newer side: that of B where there is one.
    pub fn newer(&self) -> Option<&EntryGroup> {
        self.b.as_ref().or(self.a.as_ref())
    }

    /// Returns `true` if a path or a line tells what it is.
    pub fn is_named(&self) -> bool {
        let named = |group: &EntryGroup| {
            let part = &group.largest;
            !part.path.is_empty() || !part.site.is_empty()
        };
        [&self.a, &self.b].into_iter().flatten().any(named)
    }
}

/// Adds up bytes. A file may claim any number; the largest is the honest answer then.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

fn change(a: u64, b: u64) -> i128 {
    i128::from(b) - i128::from(a)
}

/// Adds up what each kind of owner has.
fn owners(a: &Attribution, b: &Attribution) -> Vec<OwnerDelta> {
    let kinds: BTreeSet<EntryKind> = a.parts.iter().chain(&b.parts).map(|part| part.kind).collect();
    let of = |held: &Attribution, kind: EntryKind| {
        let parts = held.parts.iter().filter(|part| part.kind == kind);
        sum(parts.map(|part| part.bytes))
    };
    let mut owners: Vec<OwnerDelta> = kinds
        .into_iter()
        .map(|kind| OwnerDelta { kind, a_bytes: of(a, kind), b_bytes: of(b, kind) })
        .collect();
    owners.sort_by_key(|owner| {
        let size = owner.bytes().unsigned_abs();
        let most = owner.a_bytes.max(owner.b_bytes);
        std::cmp::Reverse((size, most))
    });
    owners
}

/// Puts the parts in pairs and keeps what is not the same.
fn changes(a: &[AttributionEntry], b: &[AttributionEntry]) -> Vec<EntryDelta> {
    let mut changes = pairs::pairs(a, b);
    changes.retain(|change| change.bytes() != 0);
    changes.sort_by(|x, y| {
        let name = |change: &EntryDelta| {
            let part = change.newer().map(|group| &group.largest);
            part.map(|part| (part.kind, part.path.clone(), part.site.clone()))
        };
        let sizes = y.bytes().unsigned_abs().cmp(&x.bytes().unsigned_abs());
        sizes.then_with(|| name(x).cmp(&name(y)))
    });
    changes
}
