//! The data of charts: what is to be drawn, with every number in it, and nothing of how.
//!
//! Each part has a *kind*: a word such as `parameters` or `activations` that means the same, and has
//! the same color, in all charts and tables of a report.

/// Bytes divided among owners, level by level. Siblings add up to their parent exactly.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// Every node after its parent; the first is the root.
    pub nodes: Vec<Node>,
}

/// A node of a [`Tree`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Index of its parent; `None` for the root.
    pub parent: Option<u32>,
    /// Its name.
    pub label: String,
    /// Kind of its owner.
    pub kind: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Shown when it is pointed at; may be empty.
    pub note: String,
}

/// Bytes over the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// What is counted along the run, such as `events`.
    pub unit: &'static str,
    /// Positions along the run, rising.
    pub positions: Vec<u64>,
    /// Each has as many values as there are positions.
    pub series: Vec<Series>,
    /// Executions of the training step, rising: their number from 1, and where they begin.
    pub steps: Vec<(u64, u64)>,
    /// Named positions.
    pub markers: Vec<Marker>,
    /// What no series can exceed, where there is such a limit.
    pub limit_bytes: Option<u64>,
    /// The request that failed, where one did.
    pub failed_request: Option<FailedRequest>,
}

/// What a request would have brought the use of memory to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FailedRequest {
    /// In the timeline's unit.
    pub position: u64,
    /// The bytes in use then.
    pub in_use_bytes: u64,
    /// The bytes that it asked for.
    pub requested_bytes: u64,
}

/// A series of a [`Timeline`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What it shows.
    pub label: String,
    /// Its value at each position.
    pub bytes: Vec<u64>,
}

/// A named position of a [`Timeline`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marker {
    /// In the timeline's unit.
    pub position: u64,
    /// Its name, such as `peak` or `jit_train_step, call 1`.
    pub label: String,
}

/// Every buffer of one program: a rectangle from the instruction that defines it to its last use, at
/// its offset in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BufferLifetimes {
    /// Name of the program.
    pub program: String,
    /// End of the highest buffer.
    pub height_bytes: u64,
    /// Names of the instructions, in the order in which they run.
    pub instructions: Vec<String>,
    /// Index of the instruction at the peak.
    pub peak_index: u32,
    /// That of the highest peak without the largest group of values.
    pub next_peak_index: Option<u32>,
    /// Live bytes at each instruction.
    pub live_bytes: Vec<u64>,
    /// The buffers.
    pub buffers: Vec<BufferLifetime>,
}

/// A buffer in [`BufferLifetimes`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BufferLifetime {
    /// Its name.
    pub label: String,
    /// Kind of its owner.
    pub kind: &'static str,
    /// Its first byte.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Index of the instruction that defines it.
    pub start: u32,
    /// Index of the last instruction that uses it.
    pub end: u32,
    /// Shape and operation: shown when it is pointed at.
    pub note: String,
    /// The user's lines that led to it, the innermost first; may be empty.
    pub stack: String,
}

/// The pool by address, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressMap {
    /// Which moment.
    pub caption: String,
    /// Regions that the pool got from the driver, by address.
    pub regions: Vec<Region>,
    /// The request that failed then, in bytes.
    pub failed_request_bytes: Option<u64>,
}

/// A region of an [`AddressMap`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Region {
    /// Its first byte.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What is in it, end to end.
    pub segments: Vec<Segment>,
}

/// Adjacent bytes of a [`Region`] with one owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Its size.
    pub bytes: u64,
    /// Kind of its owner; `free` for none.
    pub kind: &'static str,
    /// What it is; may be empty.
    pub label: String,
}

/// Metrics over the steps of a training run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// Unit of the horizontal axis.
    pub unit: &'static str,
    /// The curves, all on one scale.
    pub curves: Vec<Curve>,
}

/// One of [`Curves`].
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Positions, rising, and finite values.
    pub points: Vec<(u64, f64)>,
}

/// A part of a whole that is divided once.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What it is.
    pub label: String,
    /// From 0 to 1.
    pub fraction: f64,
    /// The same as an amount, such as `30.0 s`.
    pub amount: String,
}

/// Alternatives by what they cost and what they save.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tradeoff {
    /// What is paid, with its unit, such as `time of a step in ms`.
    pub cost: &'static str,
    /// The alternatives; their order is that of the table beside it.
    pub alternatives: Vec<Alternative>,
    /// What the bytes must not exceed, where there is such a limit.
    pub limit_bytes: Option<u64>,
}

/// The kind of an owner, its name for people, and its bytes.
pub type OwnerBytes = (&'static str, &'static str, u64);

/// A total, divided among owners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// Its name.
    pub label: String,
    /// Its parts.
    pub parts: Vec<OwnerBytes>,
}

/// A point of a [`Tradeoff`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alternative {
    /// What it is.
    pub label: String,
    /// What it needs.
    pub bytes: u64,
    /// What it costs.
    pub cost: f64,
    /// What it is among the others.
    pub kind: AlternativeKind,
}

/// What an alternative is among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AlternativeKind {
    /// Another one is better in both.
    #[default]
    Dominated,
    /// No other one is better in both.
    ParetoOptimal,
    /// Nothing is changed.
    Unchanged,
    /// The one to choose.
    Recommended,
}

impl AlternativeKind {
    /// Returns its name.
    pub fn label(self) -> &'static str {
        match self {
            AlternativeKind::Dominated => "beaten",
            AlternativeKind::ParetoOptimal => "worth choosing",
            AlternativeKind::Unchanged => "as it is",
            AlternativeKind::Recommended => "recommended",
        }
    }

    /// Returns the character that stands for it in a terminal.
    pub(crate) fn symbol(self) -> char {
        match self {
            AlternativeKind::Dominated => '.',
            AlternativeKind::ParetoOptimal => 'o',
            AlternativeKind::Unchanged => '=',
            AlternativeKind::Recommended => '>',
        }
    }
}
