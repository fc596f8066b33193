//! Reports: what a run came to, as data, and the formats it is rendered in.
//!
//! | module | what it is |
//! | --- | --- |
//! | `dryrun.rs`, `estimate.rs`, `explain.rs`, `plan.rs`, `replay.rs`, `diff.rs`, `training.rs` | which sections a report has |
//! | `sections/` | a function for each section, from the summary of a run |
//! | `phrases.rs` | phrases that several sections use |
//! | `charts.rs` | the data of charts |
//! | `json/` | what `--json` prints; it comes from the summary, too |
//! | `render/` | text and HTML of a [`Report`]; they compute nothing |

mod charts;
mod diff;
mod dryrun;
mod estimate;
mod explain;
mod json;
mod phrases;
mod plan;
mod render;
mod replay;
mod sections;
mod training;

pub use charts::{
    AddressMap, Alternative, AlternativeKind, BufferLifetime, BufferLifetimes, Curve, Curves,
    FailedRequest, Marker, Node, Region, Segment, Series, Share, Stack, Timeline, Tradeoff, Tree,
};
pub use plan::{PlanRow, PlanSummary};

use vramfit_train::MetricsLog;

use crate::analysis::{Comparison, Condition, Phase, ProgramMismatch, RunSummary};
use crate::bytes::Bytes;
use crate::diff::RunDiff;
use crate::explain::Explanation;
use crate::lint::Finding;

/// What a run came to, ready to be rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The command that it comes from, such as `vramfit dryrun`.
    pub title: String,
    /// Whether the run fits, or the training run finished.
    pub outcome: Outcome,
    /// The result in one sentence.
    pub headline: String,
    /// What takes the memory, in sentences; may be empty.
    pub cause: Vec<String>,
    /// What follows it, in order.
    pub sections: Vec<Section>,
    /// What is needed to reproduce the run: command, GPU, versions.
    pub metadata: Vec<Metric>,
    /// What `--json` prints.
    pub json: serde_json::Value,
}

/// The answer of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The run fits, or is finished.
    Success,
    /// It does not.
    Failure,
    /// Nobody knows.
    #[default]
    Unknown,
    /// The report answers another question.
    Neutral,
}

impl From<Option<bool>> for Outcome {
    fn from(success: Option<bool>) -> Self {
        match success {
            Some(true) => Outcome::Success,
            Some(false) => Outcome::Failure,
            None => Outcome::Unknown,
        }
    }
}

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
    fn new(title: impl Into<String>, content: Content) -> Self {
        let title = title.into();
        Section { title, content, text: None, detail: false }
    }

    fn detail(title: impl Into<String>, content: Content) -> Self {
        Section { detail: true, ..Section::new(title, content) }
    }

    /// Returns a section with a picture or a wide table, and what text shows instead.
    fn with_text(title: &str, content: Content, text: Content) -> Self {
        Section { text: Some(text), ..Section::new(title, content) }
    }

    /// Returns the same section as one that only a full report shows.
    fn into_detail(self) -> Self {
        Section { detail: true, ..self }
    }

    /// Returns a section with a bulleted list, unless the list is empty.
    fn list(title: &str, points: Vec<String>) -> Option<Self> {
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
    fn new(label: &str, value: Value, note: impl Into<String>) -> Self {
        Metric { label: label.to_owned(), value, note: note.into() }
    }

    fn text(label: &str, text: impl Into<String>) -> Self {
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
    fn new(columns: &[&str], rows: Vec<Vec<Value>>, note: impl Into<String>) -> Self {
        Table {
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
            rows,
            note: note.into(),
        }
    }
}

/// The used part of a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is of; may be empty.
    pub label: String,
    /// The part.
    pub part_bytes: u64,
    /// The whole.
    pub whole_bytes: u64,
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
    fn bytes_or_none(bytes: Option<u64>) -> Self {
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

/// Renders lint findings for a terminal of 80 columns, without a line feed at the end; empty when there
/// are none.
pub fn render_findings(findings: &[Finding]) -> String {
    render::text::findings::render(findings)
}

/// Describes in a clause where two hosts execute different programs.
pub fn describe_mismatch(mismatch: &ProgramMismatch) -> String {
    sections::hosts::mismatch_clause(mismatch)
}

/// Describes a condition in a clause.
pub fn describe_condition(condition: &Condition) -> String {
    sections::conditions::clause(condition)
}

/// Describes what began after the first training steps, in a clause each.
pub fn describe_phases(phases: &[Phase]) -> Vec<String> {
    sections::phases::points(phases)
}

/// Puts into a headline what its answer depends on: `fits, if A: REST; B`. `run` names what was measured: `the dry run`,
/// or `each dry run` where the answer is about several.
pub fn qualify_headline(answer: &str, rest: &str, conditions: &[Condition], run: &str) -> String {
    sections::conditions::qualify(answer, rest, conditions, run)
}

/// Returns conditions as JSON: each with its data, its text, and what it does to the answer.
pub fn conditions_json(conditions: &[Condition]) -> serde_json::Value {
    json::conditions(conditions)
}

impl Report {
    /// Makes the report of a dry run.
    pub fn from_dryrun(summary: &RunSummary) -> Report {
        dryrun::report(summary)
    }

    /// Makes the report of one function that ran with more memory than the GPU has. `comparison` is the
    /// same run in the pool of that GPU, see [`crate::analysis::compare`].
    pub fn from_estimate(needed: &RunSummary, comparison: &Comparison) -> Report {
        estimate::report(needed, comparison)
    }

    /// Makes the report of a search for a plan.
    pub fn from_plan(summary: PlanSummary) -> Report {
        plan::report(summary)
    }

    /// Makes the report of a replay.
    pub fn from_replay(comparison: &Comparison) -> Report {
        replay::report(comparison)
    }

    /// Makes the report of what makes one run need more than another.
    pub fn from_diff(difference: &RunDiff) -> Report {
        diff::report(difference)
    }

    /// Makes the report of why a program ran out of memory.
    pub fn from_explanation(explanation: &Explanation) -> Report {
        explain::report(explanation)
    }

    /// Makes the report of a training run.
    pub fn from_training(log: &MetricsLog) -> Report {
        training::report(log)
    }

    /// Returns the report for a terminal of 80 columns, without colors, without details and without
    /// a line feed at the end. The first line is the headline.
    pub fn to_text(&self) -> String {
        render::text::render(self, false)
    }

    /// Returns the same with details.
    pub fn to_full_text(&self) -> String {
        render::text::render(self, true)
    }

    /// Returns what fits on a screen of it: at most 30 lines, the last of which says what is left out.
    pub fn to_brief_text(&self) -> String {
        const MAX_LINES: usize = 30;
        self.to_limited_text(MAX_LINES, "--full")
    }

    /// Returns at most `max_lines` of it. The last one says how many are left out, and that `option` of the
    /// command shows them.
    pub fn to_limited_text(&self, max_lines: usize, option: &str) -> String {
        render::text::render_brief(self, max_lines, option)
    }

    /// Returns its first chart for a terminal of 80 columns; empty when it has none.
    pub fn chart_text(&self) -> String {
        render::text::chart(self)
    }

    /// Returns the JSON object on one line.
    pub fn to_json(&self) -> String {
        self.json.to_string()
    }

    /// Returns the report as one self-contained HTML file, which loads nothing.
    pub fn to_html(&self) -> String {
        render::html::render(self)
    }
}

/// Returns the report of a dry run as text with all details; see [`Report::to_full_text`].
pub fn text(summary: &RunSummary) -> String {
    Report::from_dryrun(summary).to_full_text()
}

/// Returns the report of a dry run as JSON; see [`Report::to_json`].
pub fn json(summary: &RunSummary) -> String {
    Report::from_dryrun(summary).to_json()
}
