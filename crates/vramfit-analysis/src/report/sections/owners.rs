//! Memory by owner at the critical moment: by kind, as a tree, and as a table of every entry.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::analysis::{Attribution, AttributionEntry, EntryKind, RunSummary, largest_line};
use crate::report::phrases::{file_name, gpu_suffix};
use crate::report::{Content, Node, OwnerBytes, Section, Table, Tree, Value};

/// Nodes that are smaller than one in this many of the whole are merged.
const MIN_SHOWN_FRACTION: u64 = 4000;

/// Returns the kinds of owners, those with most bytes first, each with its largest entry.
fn kinds(attribution: &Attribution) -> Vec<(EntryKind, u64, &AttributionEntry)> {
    let mut kinds: BTreeMap<EntryKind, (u64, &AttributionEntry)> = BTreeMap::new();
    for entry in &attribution.parts {
        // The largest comes first.
        kinds.entry(entry.kind).or_insert((0, entry)).0 += entry.bytes;
    }
    let kinds = kinds.into_iter().map(|(kind, (bytes, largest))| (kind, bytes, largest));
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_by_key(|(kind, bytes, _)| (Reverse(*bytes), *kind));
    kinds
}

/// Returns the owners of what a run needs, which add up to `needed_bytes`: what nobody is known to own is of kind
/// `unknown`. Empty without any attribution.
pub(in crate::report) fn bytes_of_kinds(
    summary: &RunSummary,
    needed_bytes: u64,
) -> Vec<OwnerBytes> {
    let Some(attribution) = &summary.attribution else {
        return Vec::new();
    };
    let mut left = needed_bytes;
    let mut owners: Vec<OwnerBytes> = Vec::new();
    for (kind, bytes, _) in kinds(attribution) {
        let bytes = bytes.min(left);
        left -= bytes;
        owners.push((kind.id(), kind.label(), bytes));
    }
    owners.push(("unknown", "not attributed", left));
    owners.retain(|(_, _, bytes)| *bytes > 0);
    owners
}

/// One row for each kind of owner.
pub(in crate::report) fn by_kind(summary: &RunSummary) -> Option<Section> {
    let attribution = summary.attribution.as_ref()?;
    let rows = kinds(attribution).into_iter().map(|(kind, bytes, largest)| {
        // Arrays that no program has named are told by their line.
        let is_array = matches!(kind, EntryKind::Arrays | EntryKind::OtherArrays);
        let arrays = attribution.parts.iter().filter(|entry| is_array && entry.kind == kind);
        let line = largest_line(arrays).map(|(site, _)| file_name(site));
        let line = line.filter(|line| largest.path.is_empty() && !line.is_empty());
        vec![
            Value::Text(kind.label().to_owned()),
            Value::Bytes(bytes),
            Value::Fraction(bytes as f64 / attribution.total_bytes.max(1) as f64),
            Value::Text(line.unwrap_or_else(|| short_name(largest)).to_owned()),
        ]
    });
    let table = Table::new(
        &["owner", "bytes", "share", "largest entry"],
        rows.collect(),
        format!("total: {} bytes, rounding included", attribution.total_bytes),
    );
    let title = title(summary, attribution);
    Some(Section::new(title, Content::Table(table)))
}

/// The same by owner, path and line.
pub(in crate::report) fn tree(summary: &RunSummary) -> Option<Section> {
    let attribution = summary.attribution.as_ref()?;
    let mut root = OwnerNode::default();
    for entry in &attribution.parts {
        root.add_child(entry.kind.id(), &levels(entry), entry.bytes);
    }
    let mut tree = Tree::default();
    let min_bytes = attribution.total_bytes / MIN_SHOWN_FRACTION;
    root.append_to(&mut tree, None, "all memory in use", "", min_bytes);
    let title = "memory by owner, path and line";
    Some(Section::detail(title, Content::Tree(tree)))
}

/// Every entry.
pub(in crate::report) fn entries(summary: &RunSummary) -> Option<Section> {
    let attribution = summary.attribution.as_ref()?;
    let rows = attribution.parts.iter().map(|entry| {
        let name = if entry.path.is_empty() { &entry.made_by } else { &entry.path };
        vec![
            Value::Text(name.clone()),
            Value::Text(entry.kind.label().to_owned()),
            Value::Bytes(entry.bytes),
            Value::Count(entry.count),
            Value::Text(entry.shape.clone()),
            Value::Text(entry.site.clone()),
        ]
    });
    let table = Table::new(
        &["name", "owner", "bytes", "count", "shape", "line"],
        rows.collect(),
        "all rows add up to the total; identical buffers are one row",
    );
    let title = "largest buffers and arrays";
    Some(Section::detail(title, Content::Table(table)))
}

fn title(summary: &RunSummary, attribution: &Attribution) -> String {
    let program = attribution.program.and_then(|at| summary.programs.get(at));
    let gpu = gpu_suffix(summary, attribution.device);
    if let Some(program) = program.filter(|_| attribution.is_planned) {
        return format!("memory breakdown of `{}`, compiled but not executed{gpu}", program.name);
    }
    let when = match (attribution.refused, program) {
        (true, Some(program)) => format!(", assuming `{}` had been allocated", program.name),
        (true, None) => ", assuming the request had succeeded".to_owned(),
        (false, Some(program)) => format!(" at the peak, in `{}`", program.name),
        (false, None) => " at the peak".to_owned(),
    };
    format!("memory breakdown{when}{gpu}")
}

/// Returns the path of an entry, else its line, else its shape.
fn short_name(entry: &AttributionEntry) -> &str {
    let line = file_name(&entry.site);
    let names = [entry.path.as_str(), line, &entry.shape, &entry.made_by];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("")
}

/// Returns the names on the way from the root of the tree to an entry.
fn levels(entry: &AttributionEntry) -> Vec<String> {
    let mut levels = vec![entry.kind.label().to_owned()];
    levels.extend(path_keys(&entry.path));
    if !entry.site.is_empty() {
        levels.push(entry.site.clone());
    }
    if entry.path.is_empty() && !entry.made_by.is_empty() {
        // The innermost operation says enough where there is a line.
        let operation = entry.made_by.rsplit('/').next().unwrap_or_default();
        levels.push(format!("{operation} {}", entry.shape).trim_end().to_owned());
    }
    levels
}

/// Returns a line without its directories, and any other name as it is.
fn short_site(name: &str) -> &str {
    let is_site = name.contains(".py:") || name.contains("<ipython");
    if is_site { file_name(name) } else { name }
}

/// Splits a pytree path: `state.params['dense'][3]` is `state`, `params`, `dense`, `3`.
fn path_keys(path: &str) -> impl Iterator<Item = String> {
    let keys = path.split(['.', '[', ']', '\'', '"']);
    keys.filter(|key| !key.is_empty()).map(str::to_owned)
}

/// A node while entries are collected.
#[derive(Default)]
struct OwnerNode {
    bytes: u64,
    kind: &'static str,
    children: BTreeMap<String, OwnerNode>,
}

impl OwnerNode {
    fn add_child(&mut self, kind: &'static str, levels: &[String], bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.kind = kind;
        if let [first, rest @ ..] = levels {
            let child = self.children.entry(first.clone()).or_default();
            child.add_child(kind, rest, bytes);
        }
    }

    /// Appends itself and its descendants; chains of single children become one node.
    fn append_to(
        self,
        tree: &mut Tree,
        parent: Option<u32>,
        label: &str,
        kind: &'static str,
        min_bytes: u64,
    ) {
        let mut label = label.to_owned();
        let mut node = self;
        while parent.is_some_and(|parent| parent > 0) && node.children.len() == 1 {
            let Some((name, only)) = node.children.pop_first() else {
                break;
            };
            label = format!("{label} / {}", short_site(&name));
            node = only;
        }
        let index = tree.nodes.len() as u32;
        let new_node =
            |parent, label, bytes| Node { parent, label, kind, bytes, note: String::new() };
        tree.nodes.push(new_node(parent, label, node.bytes));
        let mut children: Vec<_> = node.children.into_iter().collect();
        children.sort_by_key(|(_, child)| Reverse(child.bytes));
        let (mut small_bytes, mut small_count, mut children_bytes) = (0u64, 0u64, 0u64);
        for (name, child) in children {
            children_bytes = children_bytes.saturating_add(child.bytes);
            if child.bytes < min_bytes {
                small_bytes += child.bytes;
                small_count += 1;
                continue;
            }
            let kind = child.kind;
            child.append_to(tree, Some(index), short_site(&name), kind, min_bytes);
        }
        if small_count > 0 {
            let label = format!("{small_count} smaller");
            let kind = if kind.is_empty() { "several owners" } else { kind };
            tree.nodes.push(Node { kind, ..new_node(Some(index), label, small_bytes) });
        }
        // What ends here, where something else has a longer path.
        if children_bytes > 0 && children_bytes < node.bytes {
            let rest = node.bytes - children_bytes;
            tree.nodes.push(new_node(Some(index), "self".to_owned(), rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::Owner;

    fn part(owner: Owner, path: &str, site: &str, bytes: u64) -> AttributionEntry {
        let (path, site) = (path.to_owned(), site.to_owned());
        AttributionEntry {
            kind: EntryKind::Program(owner),
            path,
            site,
            bytes,
            count: 1,
            ..AttributionEntry::default()
        }
    }

    #[test]
    fn siblings_add_up_and_single_children_are_joined() {
        let mut root = OwnerNode::default();
        let parts = [
            part(Owner::Parameters, "s.params['a']['w']", "t.py:1", 60),
            part(Owner::Parameters, "s.params['b']['w']", "t.py:1", 40),
            part(Owner::Activations, "", "t.py:9", 7),
        ];
        for part in &parts {
            root.add_child(part.kind.id(), &levels(part), part.bytes);
        }
        let mut tree = Tree::default();
        root.append_to(&mut tree, None, "all", "", 0);
        let labels: Vec<_> =
            tree.nodes.iter().map(|node| (node.label.as_str(), node.bytes)).collect();
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
    fn small_nodes_are_merged() {
        let mut root = OwnerNode::default();
        for number in 0..9 {
            root.add_child("batch", &["x".to_owned(), format!("{number}"), "y".to_owned()], 1);
        }
        root.add_child("batch", &["x".to_owned(), "large".to_owned()], 91);
        let mut tree = Tree::default();
        root.append_to(&mut tree, None, "all", "", 5);
        assert_eq!(
            tree.nodes.last().map(|node| (node.label.as_str(), node.bytes)),
            Some(("9 smaller", 9))
        );
    }
}
