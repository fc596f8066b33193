//! Pictures as data: what is to be drawn, with every figure in it, and nothing of how.
//!
//! Each part has a *kind*: a word such as `parameters` or `activations` that means the same, and has
//! the same colour, in all pictures and tables of a report.

use serde::Serialize;

/// Bytes divided among owners, again and again. Siblings add up to their parent exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tree {
    /// Every node after its parent; the first is the root.
    pub nodes: Vec<Node>,
}

/// A node of a [`Tree`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Node {
    /// Index of its parent; `None` for the root.
    pub parent: Option<u32>,
    /// What it is called.
    pub label: String,
    /// What kind of owner it is.
    pub kind: &'static str,
    /// How much is its.
    pub bytes: u64,
    /// What else is to be known of it; may be empty.
    pub note: String,
}

/// Bytes over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// What is counted along the run, such as `events`.
    pub unit: &'static str,
    /// Positions along the run, rising.
    pub at: Vec<u64>,
    /// Lines of as many values as there are positions.
    pub lines: Vec<Line>,
    /// Moments with a name.
    pub marks: Vec<Mark>,
    /// What no line can rise above, where there is such a limit.
    pub limit_bytes: Option<u64>,
}

/// A line of a [`Timeline`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// What it shows.
    pub label: String,
    /// Its value at each position.
    pub bytes: Vec<u64>,
}

/// A moment of a [`Timeline`] that has a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mark {
    /// Its position, in the timeline's unit.
    pub at: u64,
    /// Its name, such as `peak` or `jit_train_step, call 1`.
    pub label: String,
}

/// Every buffer of one program over its course: a rectangle from the moment it is made to the
/// moment it is last needed, at its place in memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bands {
    /// What is shown, such as `jit_train_step`.
    pub label: String,
    /// Bytes from the lowest to the highest place.
    pub height_bytes: u64,
    /// Names of the moments (instructions, in the order in which they run).
    pub moments: Vec<String>,
    /// Index of the moment of the peak.
    pub peak_at: u32,
    /// Live bytes at each moment.
    pub live_bytes: Vec<u64>,
    /// The buffers.
    pub bands: Vec<Band>,
}

/// A buffer in [`Bands`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Band {
    /// What it is called.
    pub label: String,
    /// What kind of owner it has.
    pub kind: &'static str,
    /// Its first byte, from the lowest place.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Index of the moment that makes it.
    pub start: u32,
    /// Index of the last moment that needs it.
    pub end: u32,
    /// Shape, operation, line: what is to be shown of it when it is pointed at.
    pub note: String,
}

/// What lies where in a pool, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AddressMap {
    /// Which moment.
    pub moment: String,
    /// Regions that the pool has from the card, by address.
    pub spans: Vec<Span>,
}

/// A region of an [`AddressMap`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Span {
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// What is in it, end to end.
    pub pieces: Vec<Piece>,
}

/// A piece of a [`Span`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Piece {
    /// Its size.
    pub bytes: u64,
    /// What kind of owner it has; `free` for none.
    pub kind: &'static str,
    /// What it is; may be empty.
    pub label: String,
}

/// Numbers over the steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Curves {
    /// What is counted from left to right.
    pub unit: &'static str,
    /// The curves, all on one scale.
    pub lines: Vec<Curve>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// Whose.
    pub label: String,
    /// Positions, rising, and finite values.
    pub points: Vec<(u64, f64)>,
}

/// A part of a whole that is divided once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Portion {
    /// What it is.
    pub label: String,
    /// Its share, from 0 to 1.
    pub share: f64,
    /// The same as an amount, in words.
    pub amount: String,
}
