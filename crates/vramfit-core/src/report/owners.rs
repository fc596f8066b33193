//! Whose the bytes are at the moment that decides: in short, as a tree, and as a table of every part.

use std::collections::BTreeMap;

use super::dryrun::section;
use super::picture::{Node, Tree};
use super::{Body, Section, Table, Value};
use crate::analysis::{Attribution, EntryKind, Part, RunSummary};

/// Parts of a tree that are smaller than one in so many of the whole are told as one.
const MIN_SHOWN_FRACTION: u64 = 4000;

/// The owners, one row each.
pub(super) fn summary(answer: &RunSummary) -> Option<Section> {
    let attribution = answer.attribution.as_ref()?;
    let mut sums: BTreeMap<EntryKind, (u64, u64, &Part)> = BTreeMap::new();
    for part in &attribution.parts {
        // The parts come with the largest first.
        let sum = sums.entry(part.kind).or_insert((0, 0, part));
        sum.0 += part.bytes;
        sum.1 += part.count;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(kind, (bytes, ..))| (std::cmp::Reverse(*bytes), *kind));
    let rows = sums.into_iter().map(|(kind, (bytes, _, largest))| {
        vec![
            Value::Text(kind.label().to_owned()),
            Value::Bytes(bytes),
            Value::Share(bytes as f64 / attribution.total_bytes.max(1) as f64),
            Value::Text(short(largest)),
        ]
    });
    let table = Table {
        columns: ["owner", "bytes", "share", "its largest part"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        note: format!(
            "all of {} bytes, rounding included",
            attribution.total_bytes
        ),
    };
    Some(section(&title(answer, attribution), Body::Table(table)))
}

/// The same as a tree.
pub(super) fn tree(answer: &RunSummary) -> Option<Section> {
    let attribution = answer.attribution.as_ref()?;
    let tree = Body::Tree(grown(answer, attribution));
    Some(detail("the same by owner, path and line", tree))
}

/// The same as a table of every part.
pub(super) fn parts(answer: &RunSummary) -> Option<Section> {
    let attribution = answer.attribution.as_ref()?;
    let table = Body::Table(table_of(attribution));
    Some(detail("the largest buffers and arrays", table))
}

fn detail(title: &str, body: Body) -> Section {
    Section {
        detail: true,
        ..section(title, body)
    }
}

fn title(answer: &RunSummary, attribution: &Attribution) -> String {
    let program = attribution.program.and_then(|at| answer.programs.get(at));
    let on = match answer.devices.len() {
        0 | 1 => String::new(),
        _ => format!(", GPU {}", attribution.device),
    };
    match (attribution.refused, program) {
        (true, Some(program)) => format!(
            "where the bytes go, had `{}` got what it asked for{on}",
            program.name
        ),
        (true, None) => format!("where the bytes go, had the request been met{on}"),
        (false, Some(program)) => {
            format!("where the bytes go at the peak, in `{}`{on}", program.name)
        }
        (false, None) => format!("where the bytes go at the peak{on}"),
    }
}

/// Says in a few words what a part is: its path, else its line, else its shape.
fn short(part: &Part) -> String {
    let site = file_name(&part.site);
    let known = [part.path.as_str(), site, &part.shape, &part.made_by];
    known
        .into_iter()
        .find(|words| !words.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Returns a site without its folders.
pub(super) fn file_name(site: &str) -> &str {
    site.rsplit('/').next().unwrap_or(site)
}

/// Returns what says most of a site: `/home/me/train.py:12 (main)` is `train.py:12`.
pub(super) fn line_of(site: &str) -> &str {
    let site = file_name(site);
    site.split_once(" (").map_or(site, |(line, _)| line)
}

fn table_of(attribution: &Attribution) -> Table {
    let rows = attribution.parts.iter().map(|part| {
        let name = match part.path.is_empty() {
            true => part.made_by.clone(),
            false => part.path.clone(),
        };
        vec![
            Value::Text(name),
            Value::Text(part.kind.label().to_owned()),
            Value::Bytes(part.bytes),
            Value::Count(part.count),
            Value::Text(part.shape.clone()),
            Value::Text(part.site.clone()),
        ]
    });
    let columns = ["what", "owner", "bytes", "number", "shape", "line"];
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: "these add up to the total; equal ones are one row".to_owned(),
    }
}

fn grown(answer: &RunSummary, attribution: &Attribution) -> Tree {
    let mut root = Branch::default();
    for part in &attribution.parts {
        root.add(part.kind.id(), &steps(part), part.bytes);
    }
    let mut tree = Tree::default();
    let least = attribution.total_bytes / MIN_SHOWN_FRACTION;
    root.grow(&mut tree, None, &title(answer, attribution), "", least);
    tree
}

/// Returns the names that lead to a part, from its owner down.
fn steps(part: &Part) -> Vec<String> {
    let mut steps = vec![part.kind.label().to_owned()];
    steps.extend(segments(&part.path));
    if !part.site.is_empty() {
        steps.push(part.site.clone());
    }
    if part.path.is_empty() && !part.made_by.is_empty() {
        // The innermost operation says enough where there is a line.
        let operation = part.made_by.rsplit('/').next().unwrap_or_default();
        steps.push(format!("{operation} {}", part.shape).trim_end().to_owned());
    }
    steps
}

/// Splits a pytree path: `state.params['dense'][3]` is `state`, `params`, `dense`, `3`.
fn segments(path: &str) -> impl Iterator<Item = String> {
    let words = path.split(['.', '[', ']', '\'', '"']);
    words.filter(|word| !word.is_empty()).map(str::to_owned)
}

/// A node while the tree grows.
#[derive(Default)]
struct Branch {
    bytes: u64,
    kind: &'static str,
    children: BTreeMap<String, Branch>,
}

impl Branch {
    fn add(&mut self, kind: &'static str, steps: &[String], bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.kind = kind;
        if let [first, rest @ ..] = steps {
            self.children
                .entry(first.clone())
                .or_default()
                .add(kind, rest, bytes);
        }
    }

    /// Adds itself and what is below it, names that lead to one thing only joined into one.
    fn grow(
        self,
        tree: &mut Tree,
        parent: Option<u32>,
        label: &str,
        kind: &'static str,
        least: u64,
    ) {
        let mut label = label.to_owned();
        let mut branch = self;
        while parent.is_some_and(|parent| parent > 0) && branch.children.len() == 1 {
            let Some((name, only)) = branch.children.pop_first() else {
                break;
            };
            label = format!("{label} / {name}");
            branch = only;
        }
        let at = tree.nodes.len() as u32;
        tree.nodes.push(Node {
            parent,
            label,
            kind,
            bytes: branch.bytes,
            note: String::new(),
        });
        let mut children: Vec<_> = branch.children.into_iter().collect();
        children.sort_by_key(|(_, child)| std::cmp::Reverse(child.bytes));
        let (mut small, mut count) = (0u64, 0u64);
        let whole = branch.bytes;
        let mut told = 0u64;
        for (name, child) in children {
            told = told.saturating_add(child.bytes);
            if child.bytes < least {
                small += child.bytes;
                count += 1;
                continue;
            }
            let kind = child.kind;
            child.grow(tree, Some(at), &name, kind, least);
        }
        let mut leaf = |label: String, bytes: u64| {
            tree.nodes.push(Node {
                parent: Some(at),
                label,
                kind,
                bytes,
                note: String::new(),
            });
        };
        if count > 0 {
            leaf(format!("{count} smaller"), small);
        }
        // What has no further name beside what has one.
        if told > 0 && told < whole {
            leaf("itself".to_owned(), whole - told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::Owner;

    fn part(owner: Owner, path: &str, site: &str, bytes: u64) -> Part {
        let (path, site) = (path.to_owned(), site.to_owned());
        Part {
            kind: EntryKind::Program(owner),
            path,
            site,
            bytes,
            count: 1,
            ..Part::default()
        }
    }

    #[test]
    fn siblings_add_up_and_single_children_are_joined() {
        let mut root = Branch::default();
        let parts = [
            part(Owner::Parameters, "s.params['a']['w']", "t.py:1", 60),
            part(Owner::Parameters, "s.params['b']['w']", "t.py:1", 40),
            part(Owner::Activations, "", "t.py:9", 7),
        ];
        for part in &parts {
            root.add(part.kind.id(), &steps(part), part.bytes);
        }
        let mut tree = Tree::default();
        root.grow(&mut tree, None, "all", "", 0);
        let labels: Vec<_> = tree
            .nodes
            .iter()
            .map(|node| (node.label.as_str(), node.bytes))
            .collect();
        assert_eq!(
            labels,
            [
                ("all", 107),
                ("parameters", 100),
                ("s / params", 100),
                ("a / w / t.py:1", 60),
                ("b / w / t.py:1", 40),
                ("saved activations", 7),
                ("t.py:9", 7),
            ]
        );
    }

    #[test]
    fn small_parts_are_one() {
        let mut root = Branch::default();
        for number in 0..9 {
            root.add(
                "batch",
                &["x".to_owned(), format!("{number}"), "y".to_owned()],
                1,
            );
        }
        root.add("batch", &["x".to_owned(), "large".to_owned()], 91);
        let mut tree = Tree::default();
        root.grow(&mut tree, None, "all", "", 5);
        assert_eq!(
            tree.nodes
                .last()
                .map(|node| (node.label.as_str(), node.bytes)),
            Some(("9 smaller", 9))
        );
    }
}
