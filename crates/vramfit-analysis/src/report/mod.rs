//! Reports: what a run came to, as data, and the formats it is rendered in.
//!
//! | module | what it is |
//! | --- | --- |
//! | `dryrun.rs`, `estimate.rs`, `explain.rs`, `plan.rs`, `replay.rs`, `diff.rs`, `training.rs` | which sections a report has |
//! | `sections/` | a function for each section, from the summary of a run |
//! | `phrases.rs` | phrases about runs that several sections use; others are in [`crate::section`] |
//! | `json/` | what `--json` prints; it comes from the summary, too |
//! | `render/` | text and HTML of a [`Report`]; they compute nothing |

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
mod short_headline;
mod training;
mod training_runs;

pub use crate::section::phrases::{estimated_range, estimated_time};
pub use crate::section::{
    Action, AddressMap, Alternative, AlternativeKind, Bar, BufferLifetime, BufferLifetimes,
    Content, Curve, Curves, FailedRequest, Marker, Metric, Node, OwnerBytes, Region, Section,
    Segment, Series, Share, Stack, Table, Timeline, Tradeoff, Tree, Value,
};
pub use plan::{PlanRow, PlanSummary};
pub use render::text::TextStyle;
pub use short_headline::ShortHeadline;

use vramfit_train::MetricsLog;

use crate::analysis::{Comparison, Condition, Phase, ProgramMismatch, RunSummary};
use crate::diff::RunDiff;
use crate::explain::Explanation;
use crate::lint::Finding;

/// What a run came to, ready to be rendered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The command that it comes from, such as `vramfit dryrun`.
    pub title: String,
    /// Whether the run fits, or the training run finished.
    pub outcome: Outcome,
    /// The result in one sentence.
    pub headline: String,
    /// The same in few words, with the cause first, where that is told apart from the headline.
    pub short_headline: Option<ShortHeadline>,
    /// What takes the memory, in sentences; may be empty.
    pub cause: Vec<String>,
    /// What to do next, on the page.
    pub next_command: Option<Action>,
    /// What follows it, in order.
    pub sections: Vec<Section>,
    /// What is needed to reproduce the run: command, GPU, versions.
    pub metadata: Vec<Metric>,
    /// What `--json` prints.
    pub json: serde_json::Value,
}

/// Lines of a report that fit on a screen.
const MAX_BRIEF_LINES: usize = 30;

/// How much of a report a text has.
#[derive(Clone, Copy, Debug)]
pub enum Extent<'a> {
    /// What is not a detail.
    Plain,
    /// Everything.
    Full,
    /// What fits on a screen; the last line says what `option` of the command shows.
    Brief {
        /// Such as `--full`.
        option: &'a str,
    },
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

/// Returns what an answer assumes, to be appended to it: `, if A and if B`; empty where it assumes nothing.
pub fn assumed_clause(conditions: &[Condition]) -> String {
    sections::conditions::assumed_clause(conditions)
}

/// Returns what an answer says nothing about, to be appended to it: `; C; D`. `run` as for [`qualify_headline`].
pub fn excluded_clauses(conditions: &[Condition], run: &str) -> String {
    sections::conditions::excluded_clauses(conditions, run)
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
        explain::report(explanation, true)
    }

    /// Makes the same for the end of the log that was explained: nothing of the log is quoted.
    pub fn from_failure(explanation: &Explanation) -> Report {
        explain::report(explanation, false)
    }

    /// Makes the report of a training run.
    pub fn from_training(log: &MetricsLog) -> Report {
        training::report(log)
    }

    /// Makes the report of several training runs, with their names.
    pub fn from_training_runs(runs: &[(String, MetricsLog)]) -> Report {
        training_runs::report(runs)
    }

    /// Returns the headline in at most 25 words, and what did not fit into them.
    pub fn short_headline(&self) -> ShortHeadline {
        let made = self.short_headline.clone();
        made.unwrap_or_else(|| ShortHeadline::new(&self.headline))
    }

    /// Returns the report for a terminal of 80 columns, without colors, without details and without
    /// a line feed at the end. The first line is the headline.
    pub fn to_text(&self) -> String {
        self.to_styled_text(Extent::Plain, TextStyle::default())
    }

    /// Returns the text in another width, or with colors.
    pub fn to_styled_text(&self, extent: Extent<'_>, style: TextStyle) -> String {
        match extent {
            Extent::Plain => render::text::render(self, false, style),
            Extent::Full => render::text::render(self, true, style),
            Extent::Brief { option } => {
                render::text::render_brief(self, MAX_BRIEF_LINES, option, style)
            }
        }
    }

    /// Returns the same with details.
    pub fn to_full_text(&self) -> String {
        self.to_styled_text(Extent::Full, TextStyle::default())
    }

    /// Returns what fits on a screen of it: at most 30 lines, the last of which says what is left out.
    pub fn to_brief_text(&self) -> String {
        self.to_limited_text(MAX_BRIEF_LINES, "--full")
    }

    /// Returns at most `max_lines` of it. The last one says how many are left out, and that `option` of the
    /// command shows them.
    pub fn to_limited_text(&self, max_lines: usize, option: &str) -> String {
        render::text::render_brief(self, max_lines, option, TextStyle::default())
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
