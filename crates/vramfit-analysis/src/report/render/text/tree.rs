//! A tree as indented lines: largest first, small parts folded into one line.

use vramfit_base::text::{cut, width};

use crate::bytes::Bytes;
use crate::report::{Node, Tree, Value};

/// Levels below the root that are shown.
const MAX_LEVELS: usize = 3;
/// Children of one node that are shown.
const MAX_CHILDREN: usize = 6;
/// Nodes of less than one in this many of the whole are folded; on the second level those of less
/// than two, and so on.
const MIN_SHOWN_FRACTION: u64 = 50;
/// Columns of the widest amount, a percentage, and the gaps before them.
const AMOUNTS_WIDTH: usize = 2 + 11 + 2 + 7;

pub(super) fn render(tree: &Tree, columns: usize) -> Vec<String> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); tree.nodes.len()];
    for (index, node) in tree.nodes.iter().enumerate() {
        if let Some(parent) = node.parent {
            children[parent as usize].push(index);
        }
    }
    for siblings in &mut children {
        siblings.sort_by_key(|node| std::cmp::Reverse(tree.nodes[*node].bytes));
    }
    let mut renderer =
        TreeRenderer { nodes: &tree.nodes, children: &children, columns, lines: Vec::new() };
    if let Some(root) = tree.nodes.first() {
        renderer.push_line(0, &root.label, root.bytes);
        renderer.push_children(0, 1);
    }
    renderer.lines
}

struct TreeRenderer<'a> {
    nodes: &'a [Node],
    children: &'a [Vec<usize>],
    columns: usize,
    lines: Vec<String>,
}

impl TreeRenderer<'_> {
    fn push_children(&mut self, node: usize, level: usize) {
        let children = &self.children[node];
        let min_bytes = (self.nodes[0].bytes / MIN_SHOWN_FRACTION * level as u64).max(1);
        let is_large = |child: &&usize| self.nodes[**child].bytes >= min_bytes;
        let large = children.iter().take(MAX_CHILDREN).take_while(is_large);
        let shown = large.count();
        // The last one instead of a line that would only say "1 more".
        let shown = shown + usize::from(children.len() == shown + 1 && shown > 0);
        for child in &children[..shown] {
            self.push_line(level, &self.nodes[*child].label, self.nodes[*child].bytes);
            if level < MAX_LEVELS {
                self.push_children(*child, level + 1);
            }
        }
        let rest = &children[shown..];
        if !rest.is_empty() {
            let bytes = rest.iter().map(|child| self.nodes[*child].bytes).sum();
            let label = match (rest.len(), shown) {
                (1, _) => "1 entry".to_owned(),
                (count, 0) => format!("{count} entries"),
                (count, _) => format!("{count} more"),
            };
            self.push_line(level, &label, bytes);
        }
    }

    fn push_line(&mut self, level: usize, label: &str, bytes: u64) {
        let indent = level * 2;
        let label_width = self.columns.saturating_sub(AMOUNTS_WIDTH + indent);
        let label = if label.is_empty() { "(unnamed)" } else { label };
        let label = cut(label, label_width);
        let padding = label_width - width(&label);
        let whole = self.nodes[0].bytes.max(1) as f64;
        let fraction = Value::Fraction(bytes as f64 / whole);
        self.lines.push(format!(
            "{:indent$}{label}{:padding$}  {:>11}  {fraction:>7}",
            "",
            "",
            Bytes(bytes)
        ));
    }
}
