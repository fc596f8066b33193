//! Reads of values that a dry run does not know, by line.

use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

use super::Fact;
use crate::section::phrases::line_or_unknown;
use crate::section::{Content, Section, Table, Value};
use crate::trace::{Event, TextId};

/// Lines that a report lists.
const MAX_SHOWN: usize = 5;

/// Reads of unknown values from one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownReadLine {
    /// The line, empty if not known.
    pub site: String,
    /// How many reads.
    pub reads: u64,
    /// How many bytes they read in all.
    pub bytes: u64,
    /// Of how many of the reads JAX made a shape, such as that of `nonzero`.
    pub shapes: u64,
    /// How many of the reads decided what the program did next.
    pub decisions: u64,
    /// The expression of the first of those, empty if not known.
    pub expression: Option<String>,
    /// What it read, such as `0` or `false`.
    pub value: Option<String>,
    /// Whether one of them decided something before the first request was refused: only then may that depend on it.
    #[serde(skip)]
    pub decided_before_failure: bool,
}

impl UnknownReadLine {
    /// Returns `true` if they decided what the program did, or how large an array is.
    pub(in crate::analysis) fn is_decisive(&self) -> bool {
        self.shapes > 0 || self.decisions > 0
    }
}

/// Reads of unknown values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownReads {
    /// By line: first where most shapes were made of them, then where they decided most, then where most reads were.
    pub lines: Vec<UnknownReadLine>,
    /// The line of the last of them; `None` without any, empty where it is not known.
    pub last: Option<String>,
}

impl Serialize for UnknownReads {
    /// The lines alone.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.lines.serialize(serializer)
    }
}

/// Counts reads of unknown values.
#[derive(Default)]
pub(in crate::analysis) struct ReadCounts {
    by_site: FxHashMap<TextId, LineCounts>,
    last: Option<TextId>,
    has_failed: bool,
}

#[derive(Default)]
struct LineCounts {
    reads: u64,
    bytes: u64,
    shapes: u64,
    decisions: u64,
    /// The expression and the value of the first decision.
    decision: Option<(TextId, TextId)>,
    decided_before_failure: bool,
}

impl ReadCounts {
    /// Notes that the first request is refused.
    pub(super) fn on_first_failure(&mut self) {
        self.has_failed = true;
    }

    fn count_decision(&mut self, site: TextId, bytes: u64) -> &mut LineCounts {
        let is_before_failure = !self.has_failed;
        let counts = self.count(site, bytes);
        counts.decided_before_failure |= is_before_failure;
        counts
    }

    fn count(&mut self, site: TextId, bytes: u64) -> &mut LineCounts {
        self.last = Some(site);
        let counts = self.by_site.entry(site).or_default();
        counts.reads += 1;
        counts.bytes = counts.bytes.saturating_add(bytes);
        counts
    }
}

impl Fact for ReadCounts {
    type Result = UnknownReads;

    fn on(&mut self, event: &Event) {
        match *event {
            Event::UnknownRead { site, bytes } => {
                self.count(site, bytes);
            }
            Event::ShapeRead { site, bytes } => self.count_decision(site, bytes).shapes += 1,
            Event::DecisiveRead { site, bytes, expression, value } => {
                let counts = self.count_decision(site, bytes);
                counts.decisions += 1;
                counts.decision.get_or_insert((expression, value));
            }
            _ => {}
        }
    }

    fn finish(&self, text: &dyn Fn(TextId) -> String) -> UnknownReads {
        let lines = self.by_site.iter().map(|(site, counts)| UnknownReadLine {
            site: text(*site),
            reads: counts.reads,
            bytes: counts.bytes,
            shapes: counts.shapes,
            decisions: counts.decisions,
            expression: counts.decision.map(|(expression, _)| text(expression)),
            value: counts.decision.map(|(_, value)| text(value)),
            decided_before_failure: counts.decided_before_failure,
        });
        let mut lines: Vec<_> = lines.collect();
        lines.sort_by(|a, b| {
            (b.shapes, b.decisions, b.reads)
                .cmp(&(a.shapes, a.decisions, a.reads))
                .then_with(|| a.site.cmp(&b.site))
        });
        UnknownReads { lines, last: self.last.map(text) }
    }
}

/// Shows where the program read placeholders.
pub fn section(reads: &UnknownReads) -> Option<Section> {
    let lines = &reads.lines;
    let has_shapes = lines.iter().any(|line| line.shapes > 0);
    let rows = lines.iter().take(MAX_SHOWN).map(|line| {
        let mut row = vec![
            Value::Text(line_or_unknown(&line.site).to_owned()),
            Value::Count(line.reads),
            Value::Bytes(line.bytes),
        ];
        row.extend(has_shapes.then_some(Value::Count(line.shapes)));
        row
    });
    let mut columns = vec!["line", "reads", "bytes"];
    columns.extend(has_shapes.then_some("shapes"));
    let rest = lines.get(MAX_SHOWN..).unwrap_or_default();
    let note = match rest.len() {
        0 => String::new(),
        count => {
            let reads: u64 = rest.iter().map(|line| line.reads).sum();
            format!("{count} more lines with {reads} reads")
        }
    };
    let table = Table::new(&columns, rows.collect(), note);
    let title = "placeholder values that the program read (its control flow may depend on them)";
    (!lines.is_empty()).then(|| Section::new(title, Content::Table(table)))
}
