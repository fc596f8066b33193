//! B-trees of version 1: the members of old groups, and the chunks of most datasets there are.

use vramfit_base::Result;

use super::bounded_reader::BoundedReader;
use super::cursor::Cursor;

/// What a tree lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Tables of names.
    Group,
    /// Chunks of a dataset.
    Chunks,
}

/// An entry of a leaf: the key before it, and where it leads.
pub(crate) struct LeafEntry<'a> {
    pub(crate) key: Cursor<'a>,
    /// Where the table or the chunk is.
    pub(crate) child: u64,
}

/// Calls `visit` with every entry of the tree's leaves, in order.
pub(crate) fn leaves(
    blocks: &mut BoundedReader<'_>,
    root: u64,
    node: Node,
    key_width: usize,
    visit: &mut dyn FnMut(&mut BoundedReader<'_>, LeafEntry<'_>) -> Result<()>,
) -> Result<()> {
    let container = blocks.container;
    let width = container.address_width;
    // Nodes still to be read; the last one comes next. Each is one level below its parent, so the
    // list is never longer than levels times entries.
    let mut open: Vec<(u64, Option<u8>)> = vec![(root, None)];
    while let Some((address, expected)) = open.pop() {
        let head = 8 + 2 * width as u64;
        let bytes = blocks.read(address, head)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.signature(b"TREE")?;
        let kind = cursor.u8()?;
        if kind != u8::from(node == Node::Chunks) {
            return Err(cursor.damaged("a B-tree has the wrong type"));
        }
        let level = cursor.u8()?;
        if expected.is_some_and(|expected| expected != level) {
            return Err(
                cursor.damaged(format_args!("a B-tree node has the unexpected level {level}"))
            );
        }
        let count = usize::from(cursor.u16()?);
        let length = count * (key_width + width) + key_width;
        let bytes = blocks.read(address + head, length as u64)?;
        let mut cursor = Cursor::new(container, &bytes, address + head);
        let first = open.len();
        for _ in 0..count {
            let offset = cursor.offset();
            let key = Cursor::new(container, cursor.take(key_width)?, offset);
            let child = cursor.known_address("the child of a B-tree node")?;
            match level.checked_sub(1) {
                Some(below) => open.push((child, Some(below))),
                None => visit(blocks, LeafEntry { key, child })?,
            }
        }
        open[first..].reverse();
    }
    Ok(())
}
