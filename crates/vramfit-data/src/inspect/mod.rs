//! Inspecting a file: what is in it, how it is stored, what it costs to load or to stream, and what will be
//! slow. Only the structure is read, the requested rows, and a few labels.

mod alike;
mod dataset_info;
mod detect_format;
mod findings;
mod h5repack;
mod labels;
mod last_axis;
mod plan;
mod preview;
mod read_speed;
mod sample;

use std::path::Path;

use serde::Serialize;
use vramfit_base::{Bytes, Error, ErrorKind, Result};

use crate::hdf5::object::ObjectFinder;
use crate::hdf5::path::{hint_contents, is_descendant};
use crate::hdf5::{Content, Node, tree};
use crate::read::RowReader;

pub use alike::AlikeMembers;
pub use dataset_info::{DatasetInfo, Problem};
pub use detect_format::{open, open_unclosed};
pub use findings::{Finding, name_attributes};
pub use plan::StreamingPlan;
pub use preview::Preview;
pub use read_speed::ReadSpeed;
pub(crate) use sample::value as read_value;
pub use sample::{LabelCount, Statistics, Value};

/// What to inspect.
#[derive(Clone, Debug)]
pub struct InspectOptions {
    /// Only these datasets or groups; everything if empty.
    pub paths: Vec<String>,
    /// How many rows of each dataset to compute statistics of.
    pub sample: Option<u64>,
    /// How many of the first rows of each dataset to return.
    pub rows: Option<u64>,
    /// Seed of the sample.
    pub seed: u64,
    /// Memory budget for streaming.
    pub budget: Bytes,
    /// Whether to measure briefly how fast rows are read.
    pub measure: bool,
    /// Whether a file that was not closed is read, whatever is missing in it.
    pub allow_unclosed: bool,
}

impl InspectOptions {
    /// The structure of the whole file, and how it would be streamed with a memory budget.
    pub fn new(budget: Bytes) -> InspectOptions {
        InspectOptions {
            paths: Vec::new(),
            sample: None,
            rows: None,
            seed: 0,
            budget,
            measure: false,
            allow_unclosed: false,
        }
    }
}

/// What is in a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The size of the file.
    pub file_bytes: Bytes,
    /// Everything in it: each group before its members, those by name.
    pub entries: Vec<Entry>,
    /// Members of a group that are alike, such as episodes.
    pub alike: Vec<AlikeMembers>,
    /// Size in memory of all arrays that can be read.
    pub memory_bytes: Bytes,
    /// How the largest datasets with the same number of rows would be streamed; none if no
    /// dataset can be.
    pub streaming: Option<StreamingPlan>,
    /// How fast the rows of those datasets are read; empty unless measured.
    pub measured: Vec<ReadSpeed>,
    /// What will be slow, and what else to know.
    pub findings: Vec<Finding>,
    /// The command that rewrites the file so that the findings about chunks and compression are gone;
    /// none if there are none, if only a part of the file was inspected, or if `h5repack` would lose
    /// something.
    pub h5repack_command: Option<String>,
}

impl FileReport {
    /// Returns the paths of the datasets that can be read, with a wildcard for those of members that are alike.
    pub fn readable_patterns(&self) -> Vec<String> {
        let patterns = alike::find_patterns(&self.entries, &self.alike);
        let readable = self.entries.iter().zip(patterns).filter(|(entry, (pattern, is_hidden))| {
            let is_single = *pattern == entry.path;
            let has_rows = |info: &DatasetInfo| {
                info.is_read
                    && info.shape.first().is_some_and(|rows| *rows > 0 || !is_single)
                    && !info.shape[1..].contains(&0)
            };
            !is_hidden && entry.problem.is_none() && entry.dataset.as_ref().is_some_and(has_rows)
        });
        readable.map(|(_, (pattern, _))| pattern).collect()
    }
}

/// One name in a file.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The path, such as `/train/x`; `/` for the root.
    pub path: String,
    /// The kind: `group`, `dataset`, `link`, `other` or `unreadable`.
    pub kind: &'static str,
    /// Names of its attributes.
    pub attributes: Vec<String>,
    /// The target of a link, as stored in the file.
    pub target: Option<String>,
    /// If it is a dataset, what it is like.
    pub dataset: Option<DatasetInfo>,
    /// Why its values cannot be read.
    pub problem: Option<Problem>,
}

/// A dataset whose rows can be read, and which entry it is.
struct OpenDataset {
    entry: usize,
    rows: RowReader,
}

/// Inspects a file.
///
/// A dataset that cannot be read, even if it is only one of the requested rows, is an [`Entry`] with a
/// [`Problem`], and no error.
///
/// # Errors
///
/// `invalid-argument` when a path is not in the file; `unsupported-feature` when the file is not HDF5
/// but another known format; `invalid-file` when not even its root can be read; `io`.
pub fn inspect_file(path: &Path, options: &InspectOptions) -> Result<FileReport> {
    let container = open_unclosed(path, options.allow_unclosed)?;
    let nodes = select(path, tree(&container)?, &options.paths)?;
    let mut finder = ObjectFinder::new(&container);
    let mut readable = Vec::new();
    let mut entries = Vec::new();
    for node in nodes {
        let (entry, rows) = entry(&mut finder, node);
        readable.extend(rows.map(|rows| OpenDataset { entry: entries.len(), rows }));
        entries.push(entry);
    }
    let alike = alike::find_alike(&entries);
    let streaming = plan::plan(path, &entries, &readable, &alike, options);
    let mut findings = findings::find_all(&entries, &readable);
    findings.extend(last_axis::find(&entries, &readable));
    for open in &readable {
        let entry = &mut entries[open.entry];
        let found = labels::find_order(&open.rows, &entry.path);
        findings.extend(keep_problem(entry, found)?.flatten());
        if let Some(wanted) = options.sample {
            let statistics = sample::statistics(&open.rows, wanted, options.seed);
            let statistics = keep_problem(entry, statistics)?.flatten();
            if let Some(info) = &mut entry.dataset {
                info.sample = statistics;
            }
        }
        if let Some(wanted) = options.rows {
            let rows = keep_problem(entry, preview::preview(&open.rows, wanted))?.flatten();
            if let Some(info) = &mut entry.dataset {
                info.rows = rows;
            }
        }
    }
    // Of a part of a file it is not known what else the command would rewrite.
    let is_whole = options.paths.is_empty();
    let h5repack_command = is_whole
        .then(|| h5repack::h5repack_command(path, &entries, &readable, &findings))
        .flatten();
    let mut findings = findings::fold(findings, &entries, &alike);
    findings.extend(findings::not_closed(&container));
    let measured = match (options.measure, plan::groups(&readable).first()) {
        (true, Some(group)) => {
            let block_rows = streaming.as_ref().and_then(|plan| plan.block_rows);
            let measured = read_speed::measure(group, block_rows);
            keep_problem(&mut entries[group[0].entry], measured)?.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    Ok(FileReport {
        measured,
        file_bytes: Bytes(container.source().length()),
        memory_bytes: Bytes(plan::bytes(&readable)),
        entries,
        alike,
        streaming,
        findings,
        h5repack_command,
    })
}

/// Records a failure to read a dataset's rows as a problem of that dataset.
///
/// # Errors
///
/// Those that do not concern the dataset: `io`.
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

/// Keeps what is at or below one of the paths, and the groups above it.
fn select(file: &Path, nodes: Vec<Node>, paths: &[String]) -> Result<Vec<Node>> {
    if paths.is_empty() {
        return Ok(nodes);
    }
    let wanted: Vec<String> =
        paths.iter().map(|path| format!("/{}", path.trim_matches('/'))).collect();
    if let Some(missing) = wanted.iter().find(|path| nodes.iter().all(|node| node.path != **path)) {
        let error =
            Error::invalid_argument(format!("`{}` contains no `{missing}`", file.display()));
        let datasets = nodes.iter().filter(|node| matches!(node.content, Content::Dataset(_)));
        return Err(hint_contents(error, datasets.map(|node| &*node.path)));
    }
    let is_selected = |node: &Node| {
        (wanted.iter())
            .any(|path| is_descendant(&node.path, path) || is_descendant(path, &node.path))
    };
    Ok(nodes.into_iter().filter(is_selected).collect())
}

fn entry(finder: &mut ObjectFinder, node: Node) -> (Entry, Option<RowReader>) {
    let mut entry = Entry {
        path: node.path,
        kind: "other",
        attributes: node.attributes,
        target: None,
        dataset: None,
        problem: None,
    };
    match node.content {
        Content::Group => entry.kind = "group",
        Content::Other => {}
        Content::SoftLink(to) => {
            entry.kind = "link";
            entry.target = Some(to);
        }
        Content::ExternalLink { file, path } => {
            entry.kind = "link";
            entry.target = Some(format!("{file}:{path}"));
        }
        Content::Again => {
            entry.kind = "link";
            entry.target = Some("a group listed above".to_owned());
        }
        Content::Unreadable { why, hint } => {
            entry.kind = "unreadable";
            entry.problem = Some(Problem { message: why, hint });
        }
        Content::Dataset(summary) => {
            entry.kind = "dataset";
            let (info, problem, rows) = dataset_info::read(finder, &entry.path, summary);
            entry.dataset = Some(info);
            entry.problem = problem;
            return (entry, rows);
        }
    }
    (entry, None)
}
