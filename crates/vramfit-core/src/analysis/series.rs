//! What a run came to over its course: levels, arrays, layouts, what grows, what is compiled again.

use serde::Serialize;

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

/// Arrays that grow in number or size from step to step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakSummary {
    /// On which device.
    pub device: u32,
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
    pub bytes: u64,
    /// By how much they took more of the pool in these steps, rounding included.
    pub allocated_bytes: u64,
}

impl LeakSummary {
    /// Returns the bytes asked for in one step: exact where all steps grew alike, else their mean.
    pub fn bytes_per_step(&self) -> u64 {
        self.bytes / self.steps.max(1)
    }
}

/// Programs of one name that were compiled, or loaded from a cache, more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompilationSummary {
    /// Their name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// How many of those came from a cache.
    pub loaded: u64,
    /// With how many different sizes of the arguments in all.
    pub argument_sizes: u64,
    /// How often after the first call of the step.
    pub after_first_step: u64,
    /// Whether the step is one of them.
    pub step: bool,
    /// The lines that asked for them, the one that asked most often first.
    pub sites: Vec<String>,
}

impl CompilationSummary {
    /// Returns `true` if a reader wants to know: while the run should have got going, or if it is the step
    /// itself. That start-up code compiles its operations for many shapes is usual.
    pub fn is_significant(&self) -> bool {
        self.after_first_step > 3 || (self.step && self.argument_sizes > 3)
    }
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
