//! How the two ends of a partitioned pool use free memory, version by version.
//!
//! The pool itself is in [`super::spatial`].

use super::chunk_table::ChunkTag;

/// An end of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolEnd {
    /// Grows upwards from the lowest address.
    Lower,
    /// Grows downwards from the highest address.
    Upper,
}

/// What an end does with a free chunk that is larger than the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SplitRule {
    /// Splits if the rest is large, as the classic pool does; otherwise hands all of it out.
    Heuristic,
    /// Always splits.
    Exact,
}

/// How one end uses free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndPolicy {
    /// What happens to the surplus of a hole.
    pub holes: SplitRule,
    /// What happens to the surplus of the gap: with the heuristic, a request can swallow it.
    pub gap: SplitRule,
    /// Among holes of equal size the highest address comes first, not the lowest.
    pub high_addresses_first: bool,
}

/// What differs between versions, and which memory is at which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpatialPolicy {
    /// The lower end.
    pub lower: EndPolicy,
    /// The upper end.
    pub upper: EndPolicy,
    /// The end of default memory; collective memory is at the other one.
    pub default_end: PoolEnd,
    /// Never asks for a second region; if not, that is where XLA can abort.
    pub single_region: bool,
}

impl EndPolicy {
    /// Returns the rule for a free chunk with this tag.
    pub(super) fn rule_for(&self, source: ChunkTag) -> SplitRule {
        if source == ChunkTag::Gap { self.gap } else { self.holes }
    }
}

impl SpatialPolicy {
    /// JAX 0.11: default memory from below.
    pub const JAX_0_11: SpatialPolicy = SpatialPolicy {
        lower: EndPolicy {
            holes: SplitRule::Heuristic,
            gap: SplitRule::Heuristic,
            high_addresses_first: false,
        },
        upper: EndPolicy {
            holes: SplitRule::Exact,
            gap: SplitRule::Exact,
            high_addresses_first: false,
        },
        default_end: PoolEnd::Lower,
        single_region: false,
    };

    /// JAX 0.12: default memory from above.
    pub const JAX_0_12: SpatialPolicy = SpatialPolicy {
        lower: EndPolicy {
            holes: SplitRule::Exact,
            gap: SplitRule::Exact,
            high_addresses_first: false,
        },
        upper: EndPolicy {
            holes: SplitRule::Heuristic,
            gap: SplitRule::Heuristic,
            high_addresses_first: true,
        },
        default_end: PoolEnd::Upper,
        single_region: true,
    };
}
