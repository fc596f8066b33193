//! Groups as they were first written: a tree of tables of names, and a heap that has the names.

use vramfit_base::Result;

use super::{Link, MAX_MEMBERS, Target};
use crate::hdf5::bounded_reader::BoundedReader;
use crate::hdf5::btree1::{self, Node};
use crate::hdf5::container::Container;
use crate::hdf5::cursor::Cursor;

/// Reads the symbol table message and all that it leads to.
pub(super) fn read(cursor: &mut Cursor<'_>, links: &mut Vec<Link>) -> Result<()> {
    let tree = cursor.known_address("the B-tree of a group")?;
    let heap = cursor.known_address("the heap of a group")?;
    let mut blocks = BoundedReader::new(cursor.container);
    let heap = LocalHeap::read(&mut blocks, heap)?;
    let width = cursor.container.length_width;
    btree1::leaves(&mut blocks, tree, Node::Group, width, &mut |blocks, leaf| {
        read_table(blocks, leaf.child, &heap, links)
    })
}

fn read_table(
    blocks: &mut BoundedReader<'_>,
    address: u64,
    heap: &LocalHeap,
    links: &mut Vec<Link>,
) -> Result<()> {
    let container = blocks.container;
    let bytes = blocks.read(address, 8)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"SNOD", 1, "a symbol table")?;
    cursor.skip(1)?;
    let count = u64::from(cursor.u16()?);
    let entry = 2 * container.address_width as u64 + 24;
    let bytes = blocks.read(address + 8, count * entry)?;
    let mut cursor = Cursor::new(container, &bytes, address + 8);
    for _ in 0..count {
        let name = heap.text(container, cursor.uint(container.address_width)?)?;
        let object = cursor.address()?;
        let cached = cursor.u32()?;
        cursor.skip(4)?;
        let mut scratch = Cursor::new(container, cursor.take(16)?, cursor.offset());
        let target = match (cached, object) {
            (2, _) => Target::Soft(heap.text(container, scratch.u32()?.into())?),
            (_, Some(object)) => Target::Object(object),
            (_, None) => return Err(cursor.damaged("a name has no object")),
        };
        if links.len() == MAX_MEMBERS {
            return Err(cursor.damaged("a group has too many members"));
        }
        links.push(Link { name, target, order: None });
    }
    Ok(())
}

/// Where the names of one group are.
struct LocalHeap {
    address: u64,
    bytes: Vec<u8>,
}

impl LocalHeap {
    fn read(blocks: &mut BoundedReader<'_>, address: u64) -> Result<LocalHeap> {
        let container = blocks.container;
        let length = 8 + 2 * container.length_width + container.address_width;
        let bytes = blocks.read(address, length as u64)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.structure(b"HEAP", 0, "a local heap")?;
        cursor.skip(3)?;
        let length = cursor.length()?;
        cursor.length()?;
        let address = cursor.known_address("the data of a local heap")?;
        Ok(LocalHeap { address, bytes: blocks.read(address, length)? })
    }

    fn text(&self, container: &Container, at: u64) -> Result<String> {
        let mut cursor = Cursor::new(container, &self.bytes, self.address);
        match usize::try_from(at) {
            Ok(at) => cursor.skip(at)?,
            Err(_) => return Err(cursor.damaged("a name lies outside its heap")),
        }
        cursor.terminated_text()
    }
}
