//! A tree as indented lines: largest first, small parts folded into one line.

use super::wrap::{cut, width};
use crate::bytes::Bytes;
use crate::report::{Node, Tree, Value};

/// Levels below the root that are told.
const LEVELS: usize = 3;
/// Parts of one owner that are told.
const PARTS: usize = 6;
/// Parts of less than one in so many of the whole are folded; on the second level those of less
/// than two, and so on.
const FOLDED_BELOW: u64 = 50;
/// Columns of the widest amount, a share, and the gaps before them.
const FIGURES: usize = 2 + 11 + 2 + 7;

/// Renders a tree, or nothing if it has no root.
pub(super) fn render(tree: &Tree, columns: usize) -> Vec<String> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); tree.nodes.len()];
    for (index, node) in tree.nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            children[parent as usize].push(index);
        }
    }
    for parts in &mut children {
        parts.sort_by_key(|part| std::cmp::Reverse(tree.nodes[*part].bytes));
    }
    let mut drawing = Drawing {
        nodes: &tree.nodes,
        children: &children,
        columns,
        lines: Vec::new(),
    };
    if let Some(root) = tree.nodes.first() {
        drawing.line(0, &root.label, root.bytes);
        drawing.parts(0, 1);
    }
    drawing.lines
}

struct Drawing<'a> {
    nodes: &'a [Node],
    children: &'a [Vec<usize>],
    columns: usize,
    lines: Vec<String>,
}

impl Drawing<'_> {
    fn parts(&mut self, node: usize, level: usize) {
        let parts = &self.children[node];
        let least = (self.nodes[0].bytes / FOLDED_BELOW * level as u64).max(1);
        let large = |part: &&usize| self.nodes[**part].bytes >= least;
        let shown = parts.iter().take(PARTS).take_while(large).count();
        // One part in the place of a line that would only say "1 more".
        let shown = shown + usize::from(parts.len() == shown + 1 && shown > 0);
        for part in &parts[..shown] {
            self.line(level, &self.nodes[*part].label, self.nodes[*part].bytes);
            if level < LEVELS {
                self.parts(*part, level + 1);
            }
        }
        let rest = &parts[shown..];
        if !rest.is_empty() {
            let bytes = rest.iter().map(|part| self.nodes[*part].bytes).sum();
            let more = if shown > 0 { " more" } else { " parts" };
            let label = match rest.len() {
                1 => "1 part".to_owned(),
                count => format!("{count}{more}"),
            };
            self.line(level, &label, bytes);
        }
    }

    fn line(&mut self, level: usize, label: &str, bytes: u64) {
        let indent = level * 2;
        let room = self.columns.saturating_sub(FIGURES + indent);
        let label = if label.is_empty() { "(no name)" } else { label };
        let label = cut(label, room);
        let pad = room - width(&label);
        let whole = self.nodes[0].bytes.max(1) as f64;
        let share = Value::Share(bytes as f64 / whole);
        self.lines.push(format!(
            "{:indent$}{label}{:pad$}  {:>11}  {share:>7}",
            "",
            "",
            Bytes(bytes)
        ));
    }
}
