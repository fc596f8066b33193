//! Bytes that have one owner, one name and one line.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::program::memory::Owner;

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
    /// Whether it is an array outside the program that ran, which something reads after the peak.
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
