//! Parts of reports as values: what is to be shown, and nothing of how. A fact about a run says here what it has to
//! show; [`crate::report`] puts reports together and renders them.

mod charts;
pub(crate) mod phrases;

pub use charts::{
    AddressMap, Alternative, AlternativeKind, BufferLifetime, BufferLifetimes, Curve, Curves,
    FailedRequest, Marker, Node, OwnerBytes, Region, Segment, Series, Share, Stack, Timeline,
    Tradeoff, Tree,
};

use crate::bytes::Bytes;

/// A part of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its heading; empty where it belongs to the headline.
    pub title: String,
    /// What it shows.
    pub content: Content,
    /// What text shows instead, where that is something else.
    pub text: Option<Content>,
    /// Whether only a full report shows it: `--full` and the page.
    pub detail: bool,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>, content: Content) -> Self {
        let title = title.into();
        Section { title, content, text: None, detail: false }
    }

    pub(crate) fn detail(title: impl Into<String>, content: Content) -> Self {
        Section { detail: true, ..Section::new(title, content) }
    }

    /// Returns a section with a picture or a wide table, and what text shows instead.
    pub(crate) fn with_text(title: &str, content: Content, text: Content) -> Self {
        Section { text: Some(text), ..Section::new(title, content) }
    }

    /// Returns the same section as one that only a full report shows.
    pub(crate) fn into_detail(self) -> Self {
        Section { detail: true, ..self }
    }

    /// Returns a section with a bulleted list, unless the list is empty.
    pub(crate) fn list(title: &str, points: Vec<String>) -> Option<Self> {
        (!points.is_empty()).then(|| Section::new(title, Content::List(points)))
    }
}

/// What a section shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A bulleted list.
    List(Vec<String>),
    /// What to do, each with its command.
    Actions(Vec<Action>),
    /// Named values.
    Metrics(Vec<Metric>),
    /// Rows and columns.
    Table(Table),
    /// Used parts of wholes.
    Bars(Vec<Bar>),
    /// Bytes divided among owners, level by level.
    Tree(Tree),
    /// Bytes over the run.
    Timeline(Timeline),
    /// Every buffer of one program, over its instructions.
    BufferLifetimes(BufferLifetimes),
    /// The pool by address.
    AddressMap(AddressMap),
    /// Metrics over the steps of a training run.
    Curves(Curves),
    /// A whole divided into its parts, once.
    Breakdown(Vec<Share>),
    /// Alternatives by bytes and cost.
    Tradeoff(Tradeoff),
    /// Several totals, divided among owners.
    Stacks(Vec<Stack>),
}

/// A way to reduce memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Advice {
    /// How many bytes it is about.
    pub(crate) bytes: u64,
    pub(crate) text: String,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// What to do, and what it brings.
    pub text: String,
    /// The command, to be copied as it is.
    pub command: String,
}

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub label: String,
    /// Its value.
    pub value: Value,
    /// What it covers, or where it comes from; may be empty.
    pub note: String,
}

impl Metric {
    pub(crate) fn new(label: &str, value: Value, note: impl Into<String>) -> Self {
        Metric { label: label.to_owned(), value, note: note.into() }
    }

    pub(crate) fn text(label: &str, text: impl Into<String>) -> Self {
        Metric::new(label, Value::Text(text.into()), "")
    }
}

/// Rows and columns. The first column holds names, the others values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Headings.
    pub columns: Vec<String>,
    /// Rows of as many values as there are headings.
    pub rows: Vec<Vec<Value>>,
    /// A remark on the whole, such as how many rows are left out; may be empty.
    pub note: String,
}

impl Table {
    pub(crate) fn new(columns: &[&str], rows: Vec<Vec<Value>>, note: impl Into<String>) -> Self {
        Table {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows,
            note: note.into(),
        }
    }
}

/// The used part of a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// What it is of; may be empty.
    pub label: String,
    /// The part.
    pub part_bytes: u64,
    /// The whole.
    pub whole_bytes: u64,
    /// The owners of the part; empty where they are not known.
    pub owners: Vec<OwnerBytes>,
    /// What the part may have in addition.
    pub uncertain_bytes: u64,
}

/// A value with its type, so that each format can write it its own way.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// An amount of memory.
    Bytes(u64),
    /// An amount of memory that was added or removed.
    Change(i64),
    /// A number of things.
    Count(u64),
    /// A fraction from 0 to 1, shown in percent.
    Fraction(f64),
    /// There is no such value here, or it is unknown; the text says which.
    Missing(&'static str),
}

impl Value {
    /// Returns the bytes, or that there are none.
    pub(crate) fn bytes_or_none(bytes: Option<u64>) -> Self {
        bytes.map_or(Value::Missing("none"), Value::Bytes)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Text(text) => f.pad(text),
            Value::Bytes(bytes) => Bytes(*bytes).fmt(f),
            Value::Change(0) => f.pad("0 B"),
            Value::Change(change) => {
                let sign = if *change < 0 { '-' } else { '+' };
                f.pad(&format!("{sign}{}", Bytes(change.unsigned_abs())))
            }
            Value::Count(count) => f.pad(&count.to_string()),
            Value::Fraction(fraction) => f.pad(&format!("{:.1} %", fraction * 100.0)),
            Value::Missing(why) => f.pad(why),
        }
    }
}
