//! B-trees of version 2: dense groups and attributes, and chunks that can grow along several axes.

use vramfit_base::Result;

use super::bounded_reader::BoundedReader;
use super::cursor::Cursor;
use super::datatype::bytes_for;

/// Signature, version, type, and behind the records the checksum.
const NODE_OVERHEAD: u64 = 10;

/// What follows from the header of a tree.
struct Shape {
    kind: u8,
    node: u64,
    record: u64,
    /// For each level: how wide the number of all records below a child is.
    totals: Vec<usize>,
    /// How wide the number of records in a node is.
    count: usize,
}

/// Calls `visit` with every record of a tree of one of the types `kinds`.
pub(crate) fn records(
    blocks: &mut BoundedReader<'_>,
    address: u64,
    kinds: &[u8],
    visit: &mut dyn FnMut(&mut Cursor<'_>) -> Result<()>,
) -> Result<()> {
    let container = blocks.container;
    let length = 22 + container.address_width + container.length_width;
    let bytes = blocks.read(address, length as u64)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"BTHD", 0, "a tree")?;
    let kind = cursor.u8()?;
    if !kinds.contains(&kind) {
        return Err(cursor.damaged(format_args!("a B-tree has the unexpected type {kind}")));
    }
    let node = cursor.u32()?.into();
    let record = cursor.u16()?.into();
    let depth = cursor.u16()?;
    cursor.skip(2)?;
    let root = cursor.address()?;
    let count = cursor.u16()?;
    cursor.length()?;
    cursor.checksum()?;
    let Some(root) = root else {
        return Ok(());
    };
    let shape = shape(&cursor, kind, node, record, depth)?;
    let mut open = vec![(root, usize::from(depth), u64::from(count))];
    while let Some((address, level, count)) = open.pop() {
        read_node(blocks, &shape, (address, level, count), &mut open, visit)?;
    }
    Ok(())
}

/// How many records fit into a node decides how wide the numbers in the nodes above are.
fn shape(cursor: &Cursor<'_>, kind: u8, node: u64, record: u64, depth: u16) -> Result<Shape> {
    let address_width = cursor.container.address_width as u64;
    let room = node.checked_sub(NODE_OVERHEAD).filter(|_| record > 0);
    let Some(leaf) = room.map(|room| room / record).filter(|&leaf| leaf > 0) else {
        return Err(cursor.damaged("the node size of a B-tree is too small for a record"));
    };
    // A tree of 2^64 records of two in a node is no deeper.
    if depth > 64 {
        return Err(cursor.damaged(format_args!("a B-tree has {depth} levels")));
    }
    let count = bytes_for(leaf);
    let (mut totals, mut below) = (vec![0], leaf);
    for level in 1..=usize::from(depth) {
        let pointer = address_width + count as u64 + totals[level - 1] as u64;
        let here = (node - NODE_OVERHEAD).saturating_sub(pointer) / (record + pointer);
        below = (here.saturating_add(1)).saturating_mul(below).saturating_add(here);
        totals.push(bytes_for(below));
    }
    Ok(Shape { kind, node, record, totals, count })
}

fn read_node(
    blocks: &mut BoundedReader<'_>,
    shape: &Shape,
    (address, level, count): (u64, usize, u64),
    open: &mut Vec<(u64, usize, u64)>,
    visit: &mut dyn FnMut(&mut Cursor<'_>) -> Result<()>,
) -> Result<()> {
    let container = blocks.container;
    let bytes = blocks.read(address, shape.node)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(if level == 0 { b"BTLF" } else { b"BTIN" }, 0, "a node of a B-tree")?;
    if cursor.u8()? != shape.kind {
        return Err(cursor.damaged("a B-tree node has the wrong type"));
    }
    let mut records = cursor.clone();
    if count * shape.record > records.left() as u64 {
        return Err(
            cursor.damaged(format_args!("a B-tree node has {count} records, more than fit"))
        );
    }
    cursor.skip((count * shape.record) as usize)?;
    let first = open.len();
    if level > 0 {
        for _ in 0..=count {
            let child = cursor.known_address("the child of a B-tree node")?;
            let child_count = cursor.uint(shape.count)?;
            if level > 1 {
                cursor.skip(shape.totals[level - 1])?;
            }
            open.push((child, level - 1, child_count));
        }
        open[first..].reverse();
    }
    cursor.checksum()?;
    for _ in 0..count {
        let at = records.offset();
        let record = records.take(shape.record as usize)?;
        visit(&mut Cursor::new(container, record, at))?;
    }
    Ok(())
}
