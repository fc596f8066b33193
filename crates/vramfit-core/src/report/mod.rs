//! How an answer is told. A [`Report`] is data; text, JSON, the HTML page, SVG and CSV are readers
//! of it, and none of them computes anything.

mod advice;
mod bands;
mod columns;
mod coverage;
mod csv;
mod data;
mod difference;
mod dryrun;
mod escape;
mod held;
mod html;
mod owners;
mod palette;
mod picture;
mod processes;
mod record;
mod replay;
mod run;
mod scratch;
mod settings;
mod svg;
mod tables;
pub(crate) mod text;
mod training;
mod verdict;
mod warnings;

use serde::Serialize;

pub use picture::{
    AddressMap, Band, Bands, Curve, Curves, Line, Mark, Node, Piece, Portion, Span, Timeline, Tree,
};

use crate::analysis::{Comparison, RunSummary};
use crate::bytes::Bytes;
use crate::diff::Difference;
use crate::lint::Finding;
use crate::train::Journal;

/// Everything a reader of a report needs, in the order in which it is told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What the report is about, such as `vramfit dryrun`.
    pub title: String,
    /// Whether the answer is yes; `None` when it cannot be told.
    pub good: Option<bool>,
    /// The answer in one sentence.
    pub answer: String,
    /// What follows it.
    pub sections: Vec<Section>,
    /// What is needed to do it again.
    pub facts: Vec<Figure>,
    /// The same for programs: what `--json` prints.
    pub record: serde_json::Value,
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Section {
    /// Its heading; empty where the answer is the heading.
    pub title: String,
    /// What it says.
    pub body: Body,
    /// Whether it is only for those who want to know everything: the answer of a command leaves it
    /// out, a full report has it.
    pub detail: bool,
}

/// The few forms in which things are said.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Sentences, each a point of its own.
    Text(Vec<String>),
    /// Figures with their names and what they mean.
    Figures(Vec<Figure>),
    /// Rows and columns.
    Table(Table),
    /// Parts of wholes, to be drawn.
    Bars(Vec<Bar>),
    /// Bytes divided among owners, again and again.
    Tree(Tree),
    /// Bytes over the run.
    Timeline(Timeline),
    /// Every buffer of one program, over its course.
    Bands(Bands),
    /// What lies where.
    Map(AddressMap),
    /// Numbers over the steps of a run.
    Curves(Curves),
    /// A whole divided into its parts, once.
    Split(Vec<Portion>),
}

/// A figure with its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub label: String,
    /// How much.
    pub value: Value,
    /// What it covers, or where it comes from; may be empty.
    pub note: String,
}

/// Rows and columns. The first column holds names, the others values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Headings.
    pub columns: Vec<String>,
    /// Rows of as many values as there are headings.
    pub rows: Vec<Vec<Value>>,
    /// What is not in it; may be empty.
    pub note: String,
}

/// A part of a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Whose.
    pub label: String,
    /// The part.
    pub part_bytes: u64,
    /// The whole.
    pub whole_bytes: u64,
}

/// A value that knows what it is, so that every reader can show it its own way.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Words.
    Text(String),
    /// An amount of memory.
    Bytes(u64),
    /// An amount of memory that came or went.
    Change(i64),
    /// A number of things.
    Count(u64),
    /// A part of one, from 0 to 1.
    Share(f64),
    /// Not known, or there is no such thing here; the text says which.
    Missing(&'static str),
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
            Value::Share(share) => f.pad(&format!("{:.1} %", share * 100.0)),
            Value::Missing(why) => f.pad(why),
        }
    }
}

/// Tells what the lint found, for a terminal of 80 columns and without a line feed at the end; empty
/// when it found nothing.
pub fn findings_text(findings: &[Finding]) -> String {
    text::findings::render(findings)
}

impl Report {
    /// Makes the report of a dry run.
    pub fn of_dryrun(answer: &RunSummary) -> Report {
        dryrun::report(answer)
    }

    /// Makes the report of a replay.
    pub fn of_replay(comparison: &Comparison) -> Report {
        replay::report(comparison)
    }

    /// Makes the report of what makes one run need more than another.
    pub fn of_difference(difference: &Difference) -> Report {
        difference::report(difference)
    }

    /// Makes the report of a training run.
    pub fn of_training(journal: &Journal) -> Report {
        training::report(journal)
    }

    /// Returns the report for a terminal of 80 columns, without colours, without details and without
    /// a line feed at the end. The first line is the answer.
    pub fn to_text(&self) -> String {
        text::render(self, false)
    }

    /// Returns the same with details.
    pub fn to_full_text(&self) -> String {
        text::render(self, true)
    }

    /// Returns the report for programs, one JSON object on one line.
    pub fn to_json(&self) -> String {
        self.record.to_string()
    }

    /// Returns the report as one self-contained HTML file: it loads nothing and needs nothing.
    pub fn to_html(&self) -> String {
        html::render(self)
    }

    /// Returns the report's largest table as CSV, with exact bytes: the buffers, where the report
    /// has any, else the table with the most rows. Empty when there is none.
    pub fn to_csv(&self) -> String {
        csv::render(self)
    }

    /// Returns the memory over the run as a picture that stands alone, where the report has one.
    pub fn to_svg(&self) -> Option<String> {
        svg::render(self)
    }
}

/// Returns the report of a dry run as text; see [`Report::to_text`].
pub fn text(answer: &RunSummary) -> String {
    Report::of_dryrun(answer).to_text()
}

/// Returns the report of a dry run as JSON; see [`Report::to_json`].
pub fn json(answer: &RunSummary) -> String {
    Report::of_dryrun(answer).to_json()
}
