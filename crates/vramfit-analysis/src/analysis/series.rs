//! What a run came to over its course: levels, arrays, layouts.

use crate::replay::PoolState;
use crate::trace::Purpose;

/// How full a pool was after one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimelinePoint {
    /// Index of the event in the trace.
    pub event: u64,
    /// The pool after it.
    pub state: PoolState,
}

/// Arrays of one device that one line made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySummary {
    /// The line that made them, or that called the program which did; empty if not known.
    pub site: String,
    /// The program that made them; `None` where no program did.
    pub program: Option<String>,
    /// What they were made as.
    pub purpose: Purpose,
    /// How many.
    pub count: u64,
    /// What was asked for.
    pub bytes: u64,
    /// What they take of the bytes in use of the pool, rounding included. These add up to the bytes
    /// in use exactly. 0 for what lies in the separate pool for collective memory.
    pub allocated_bytes: u64,
}

/// What lies where in a pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutSummary {
    /// The regions that the pool has from the GPU, by address.
    pub regions: Vec<RegionSummary>,
}

/// A region of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSummary {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What is in it, end to end. Neighbors by one maker are one piece; where there are very many,
    /// small neighbors are told as one.
    pub pieces: Vec<PieceSummary>,
}

/// A piece of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSummary {
    /// Its size.
    pub bytes: u64,
    /// How many blocks are in it; 0 where it is free.
    pub blocks: u64,
    /// How much of it is free, where several small ones are told as one.
    pub free_bytes: u64,
    /// What its largest part was made as; `None` where it is free.
    pub purpose: Option<Purpose>,
    /// Line of that part, empty if not known.
    pub site: String,
    /// Program of that part; `None` where no program made it.
    pub program: Option<String>,
}
