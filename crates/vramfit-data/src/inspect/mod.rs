//! Looking at a file: what is in it, how it is stored, what it costs to load or to stream, what will be
//! slow. The structure is read, and of the rows only those that are asked for and a few labels.

mod advice;
mod facts;
mod foreign;
mod labels;
mod measure;
mod plan;
mod preview;
mod sample;

use std::path::Path;

use serde::Serialize;
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::hdf5::{Container, Content, Node, tree};
use crate::read::Rows;

pub use advice::Finding;
pub use facts::{Facts, Problem};
pub use foreign::open;
pub use measure::Speed;
pub use plan::Plan;
pub use preview::Preview;
pub use sample::{Count, Statistics, Value};

/// What is wanted of a file.
#[derive(Clone, Debug)]
pub struct Request {
    /// Only these datasets or groups; everything where there are none.
    pub paths: Vec<String>,
    /// Of how many rows of each dataset statistics are made; none without.
    pub sample: Option<u64>,
    /// How many of the first rows of each dataset are shown; none without.
    pub rows: Option<u64>,
    /// Decides which rows are sampled.
    pub seed: u64,
    /// The memory that streaming may use.
    pub budget: Bytes,
    /// Whether to read rows for a moment, to see how quickly they come.
    pub measure: bool,
}

/// What a file is.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// The size of the file.
    pub file_bytes: Bytes,
    /// Everything in it: each group before its members, those by name.
    pub entries: Vec<Entry>,
    /// What the arrays take that can be read, all of them in memory.
    pub memory_bytes: Bytes,
    /// How the largest datasets that have equally many rows would be streamed; none where no
    /// dataset can be.
    pub streaming: Option<Plan>,
    /// How quickly the rows of those datasets come; empty unless it was measured.
    pub measured: Vec<Speed>,
    /// What will be slow, and what should be known.
    pub findings: Vec<Finding>,
}

/// One name in a file.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The path, such as `/train/x`; `/` for the root.
    pub path: String,
    /// What it is: `group`, `dataset`, `link`, `other` or `unreadable`.
    pub kind: &'static str,
    /// Names of its attributes.
    pub attributes: Vec<String>,
    /// Where a link leads, as the file has it.
    pub leads_to: Option<String>,
    /// What is known of a dataset.
    pub dataset: Option<Facts>,
    /// Why its values cannot be read here.
    pub problem: Option<Problem>,
}

/// A dataset whose rows can be read, and which entry it is.
struct Open {
    entry: usize,
    rows: Rows,
}

/// Looks at a file.
///
/// A dataset that cannot be read, or of which one row that is looked at cannot be, is an [`Entry`] with a
/// [`Problem`], and no error.
///
/// # Errors
///
/// `invalid-argument` when a path is not in the file; `unsupported-feature` when the file is of another
/// kind than HDF5; `invalid-file` when not even its root can be read; `io`.
pub fn survey(path: &Path, request: &Request) -> Result<Survey> {
    let container = open(path)?;
    let nodes = chosen(path, tree(&container)?, &request.paths)?;
    let mut readable = Vec::new();
    let mut entries = Vec::new();
    for node in nodes {
        let (entry, rows) = entry(&container, node);
        readable.extend(rows.map(|rows| Open {
            entry: entries.len(),
            rows,
        }));
        entries.push(entry);
    }
    let streaming = plan::plan(path, &entries, &readable, request.budget);
    let mut findings = advice::findings(&entries, &readable);
    for open in &readable {
        let entry = &mut entries[open.entry];
        let found = labels::find_order(&open.rows, &entry.path);
        findings.extend(keep_problem(entry, found)?.flatten());
    }
    for finding in &mut findings {
        finding.command = advice::command(path, finding.id);
    }
    if let Some(rows) = request.sample {
        for open in &readable {
            let entry = &mut entries[open.entry];
            let statistics = sample::statistics(&open.rows, rows, request.seed);
            let statistics = keep_problem(entry, statistics)?.flatten();
            if let Some(facts) = &mut entry.dataset {
                facts.sample = statistics;
            }
        }
    }
    if let Some(wanted) = request.rows {
        for open in &readable {
            let entry = &mut entries[open.entry];
            let rows = keep_problem(entry, preview::preview(&open.rows, wanted))?.flatten();
            if let Some(facts) = &mut entry.dataset {
                facts.rows = rows;
            }
        }
    }
    let measured = match (request.measure, plan::groups(&readable).first()) {
        (true, Some(group)) => {
            let block_rows = streaming.as_ref().and_then(|plan| plan.block_rows);
            let measured = measure::measure(group, block_rows);
            keep_problem(&mut entries[group[0].entry], measured)?.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    Ok(Survey {
        measured,
        file_bytes: Bytes(container.source().length()),
        memory_bytes: Bytes(
            readable
                .iter()
                .map(|open| open.rows.dataset().bytes())
                .sum(),
        ),
        entries,
        streaming,
        findings,
    })
}

/// Makes a failure to read a dataset's rows a problem of that dataset, and goes on without them.
///
/// # Errors
///
/// What is no matter of the dataset: `io`.
fn keep_problem<T>(entry: &mut Entry, found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        Err(error) => {
            let problem = Problem::new(&entry.path, &error);
            entry.problem.get_or_insert(problem);
            Ok(None)
        }
    }
}

/// Keeps what is at or below one of the paths, and the groups on the way there.
fn chosen(file: &Path, nodes: Vec<Node>, paths: &[String]) -> Result<Vec<Node>> {
    if paths.is_empty() {
        return Ok(nodes);
    }
    let wanted: Vec<String> = paths
        .iter()
        .map(|path| format!("/{}", path.trim_matches('/')))
        .collect();
    if let Some(missing) = wanted
        .iter()
        .find(|path| nodes.iter().all(|node| node.path != **path))
    {
        let error = Error::new(
            ErrorKind::InvalidArgument,
            format!("`{}` has no `{missing}`", file.display()),
        );
        let names: Vec<String> = nodes
            .iter()
            .filter(|node| matches!(node.content, Content::Dataset(_)))
            .take(8)
            .map(|node| format!("`{}`", node.path.escape_debug()))
            .collect();
        return Err(match names.is_empty() {
            true => error,
            false => error.hint(format!("there is {}", names.join(", "))),
        });
    }
    let below = |inner: &str, outer: &str| {
        outer == "/"
            || inner == outer
            || inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.starts_with('/'))
    };
    let nodes = nodes.into_iter();
    Ok(nodes
        .filter(|node| {
            let mut wanted = wanted.iter();
            wanted.any(|path| below(&node.path, path) || below(path, &node.path))
        })
        .collect())
}

fn entry(container: &Container, node: Node) -> (Entry, Option<Rows>) {
    let mut entry = Entry {
        path: node.path,
        kind: "other",
        attributes: node.attributes,
        leads_to: None,
        dataset: None,
        problem: None,
    };
    match node.content {
        Content::Group => entry.kind = "group",
        Content::Other => {}
        Content::SoftLink(to) => {
            entry.kind = "link";
            entry.leads_to = Some(to);
        }
        Content::ExternalLink { file, path } => {
            entry.kind = "link";
            entry.leads_to = Some(format!("{file}:{path}"));
        }
        Content::Again => {
            entry.kind = "link";
            entry.leads_to = Some("a group that is listed above".to_owned());
        }
        Content::Unreadable { why, hint } => {
            entry.kind = "unreadable";
            entry.problem = Some(Problem { message: why, hint });
        }
        Content::Dataset(summary) => {
            entry.kind = "dataset";
            let (facts, problem, rows) = facts::facts(container, &entry.path, summary);
            entry.dataset = Some(facts);
            entry.problem = problem;
            return (entry, rows);
        }
    }
    (entry, None)
}
