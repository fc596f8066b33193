//! Bytes that have one owner, one name and one line.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::program_slots::ProgramSlots;
use super::scratch::RecordedScratch;
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner};
use crate::trace::{Purpose, TextId};

/// Bytes that have one owner, one name and one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct AttributionEntry {
    /// What kind of owner it has.
    pub kind: EntryKind,
    /// Pytree path of an argument or output; empty for what has none.
    pub path: String,
    /// Line of the user's program that it comes from; empty if not known.
    pub site: String,
    /// Shape, such as `f32[256,1024]`; empty where it is several things.
    pub shape: String,
    /// The operation that makes it, as JAX nests it, or the program that made it; may be empty.
    pub made_by: String,
    /// Whether a loop writes one slice of it in each round, as `jax.lax.scan` does.
    pub stacked: bool,
    /// Whether it is computed a second time to save memory.
    pub rematerialized: bool,
    /// Whether it is an array outside the program that ran, which something reads after the peak; of a run that failed
    /// there, whether it is state that the program which made it takes in its next call.
    pub read_later: bool,
    /// How many buffers or arrays.
    pub count: u64,
    /// How much.
    pub bytes: u64,
}

/// Kinds of owners: those of a program, and those beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A buffer of the program that ran.
    Program(Owner),
    /// Arrays, where no program ran or it is not known which of them are its arguments.
    #[default]
    Arrays,
    /// Arrays that the program that ran has nothing to do with.
    OtherArrays,
    /// Scratch memory of a library's routine, beside the temporaries of the program that ran.
    Scratch,
    /// What the allocator gave out beyond what was asked for.
    Rounding,
}

impl AttributionEntry {
    /// Names an argument; its line is the one that made the array.
    pub(super) fn of_argument(places: &ProgramSlots<'_>, parameter: u32, site: &str) -> Self {
        let buffer = places.arguments.get(&parameter);
        let path = || format!("argument {parameter}");
        AttributionEntry {
            kind: EntryKind::Program(buffer.map_or(Owner::Batch, |buffer| buffer.owner)),
            path: buffer.map_or_else(path, |buffer| buffer.path.clone()),
            site: site.to_owned(),
            shape: buffer.map_or(String::new(), |buffer| buffer.shape.clone()),
            ..AttributionEntry::default()
        }
    }

    /// Names a buffer of a program by the user's line that led to it.
    pub(super) fn of_buffer(memory: &ProgramMemory, buffer: &Buffer) -> Self {
        let (owner, path) = match buffer.is_residual() {
            true => (Owner::Activations, String::new()),
            false => (buffer.owner, buffer.path.clone()),
        };
        AttributionEntry {
            kind: EntryKind::Program(owner),
            path,
            site: memory.user_site(buffer.frame).unwrap_or_default().to_owned(),
            shape: buffer.shape.clone(),
            made_by: match buffer.operation.is_empty() {
                true => buffer.instruction.clone(),
                false => buffer.operation.clone(),
            },
            stacked: buffer.stacked,
            rematerialized: buffer.rematerialized,
            ..AttributionEntry::default()
        }
    }

    /// Names what a program of unknown buffers took, or an upload, of which only the program that is given
    /// it knows what it is.
    pub(super) fn of_purpose(purpose: Purpose) -> Self {
        AttributionEntry::of_kind(match purpose {
            Purpose::Temporary | Purpose::Scratch => EntryKind::Program(Owner::Temporaries),
            Purpose::Constant => EntryKind::Program(Owner::Constants),
            Purpose::Upload => EntryKind::Arrays,
            Purpose::Output | Purpose::Tuple | Purpose::Copy => EntryKind::Program(Owner::Outputs),
        })
    }

    /// Names scratch memory by the routine of a library that takes it.
    pub(super) fn of_scratch<'a>(need: &RecordedScratch, text: impl Fn(TextId) -> &'a str) -> Self {
        AttributionEntry {
            site: text(need.site).to_owned(),
            made_by: format!("{} {}", text(need.library), text(need.routine)),
            ..AttributionEntry::of_kind(EntryKind::Scratch)
        }
    }

    /// Names bytes by their owner only.
    pub(super) fn of_kind(kind: EntryKind) -> Self {
        AttributionEntry { kind, ..AttributionEntry::default() }
    }
}

impl EntryKind {
    /// Returns the word for programs.
    pub fn id(self) -> &'static str {
        match self {
            EntryKind::Program(owner) => owner.id(),
            EntryKind::Arrays => "arrays",
            EntryKind::OtherArrays => "other_arrays",
            EntryKind::Scratch => "library_scratch",
            EntryKind::Rounding => "rounding",
        }
    }

    /// Returns the words for people.
    pub fn label(self) -> &'static str {
        match self {
            EntryKind::Program(owner) => owner.label(),
            EntryKind::Arrays => "arrays",
            EntryKind::OtherArrays => "other arrays",
            EntryKind::Scratch => "library scratch",
            EntryKind::Rounding => "rounding of the allocator",
        }
    }
}

/// Entries, of which those that are alike are one.
#[derive(Default)]
pub(super) struct EntrySet(FxHashMap<AttributionEntry, (u64, u64)>);

impl EntrySet {
    /// Adds bytes to the part that is like this one.
    pub(super) fn add(&mut self, part: AttributionEntry, bytes: u64) {
        if bytes > 0 {
            let sum = self.0.entry(part).or_default();
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(bytes);
        }
    }

    /// Returns the parts, the largest first.
    pub(super) fn sorted(self) -> Vec<AttributionEntry> {
        let parts = self.0.into_iter();
        let mut parts: Vec<AttributionEntry> =
            parts.map(|(part, (count, bytes))| AttributionEntry { count, bytes, ..part }).collect();
        parts.sort_by(|a, b| {
            let marks = |part: &AttributionEntry| {
                (part.kind, part.stacked, part.rematerialized, part.read_later)
            };
            let name = |part| -> [&str; 4] {
                let AttributionEntry { path, site, made_by, shape, .. }: &AttributionEntry = part;
                [path, site, made_by, shape]
            };
            b.bytes.cmp(&a.bytes).then_with(|| (marks(a), name(a)).cmp(&(marks(b), name(b))))
        });
        parts
    }
}

/// Returns the line that made most bytes of some entries, and how many; `None` without any.
pub fn largest_line<'a>(
    entries: impl Iterator<Item = &'a AttributionEntry>,
) -> Option<(&'a str, u64)> {
    let mut by_line: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in entries {
        *by_line.entry(&entry.site).or_default() += entry.bytes;
    }
    // Of equals the first.
    by_line.into_iter().rev().max_by_key(|(_, bytes)| *bytes)
}
