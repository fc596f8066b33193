//! Groups with many members, and objects with many attributes: a tree of identifiers, and a heap
//! that has what they identify.

use vramfit_core::Result;

use super::{Link, MAX_MEMBERS, link};
use crate::hdf5::bounded_reader::BoundedReader;
use crate::hdf5::btree2;
use crate::hdf5::cursor::Cursor;
use crate::hdf5::fractal_heap::FractalHeap;

/// Trees by the hash of a name have these types: of links, and of attributes.
const LINKS_BY_NAME: u8 = 5;
const ATTRIBUTES_BY_NAME: u8 = 8;

/// Reads the members of a group.
pub(super) fn links(
    blocks: &mut BoundedReader<'_>,
    heap: u64,
    index: u64,
    links: &mut Vec<Link>,
) -> Result<()> {
    let container = blocks.container();
    let heap = FractalHeap::read(blocks, heap)?;
    let mut ids = Vec::new();
    btree2::records(blocks, index, &[LINKS_BY_NAME], &mut |cursor| {
        // The hash of the name.
        cursor.skip(4)?;
        ids.push(cursor.rest().to_vec());
        Ok(())
    })?;
    for id in ids {
        let (address, bytes) = heap.object(container, &id)?;
        if links.len() == MAX_MEMBERS {
            return Err(container.damaged(address, "a group has too many members"));
        }
        links.push(link::read(&mut Cursor::new(container, &bytes, address))?);
    }
    Ok(())
}

/// Where in the file something is, and its bytes.
type Found = (u64, Vec<u8>);

/// Returns where each attribute of an object is, and its bytes.
pub(crate) fn attributes(
    blocks: &mut BoundedReader<'_>,
    heap: u64,
    index: u64,
) -> Result<Vec<Result<Found>>> {
    let container = blocks.container();
    let heap = FractalHeap::read(blocks, heap)?;
    let mut ids = Vec::new();
    btree2::records(blocks, index, &[ATTRIBUTES_BY_NAME], &mut |cursor| {
        ids.push(cursor.take(8)?.to_vec());
        Ok(())
    })?;
    let found = ids.iter().map(|id| heap.object(container, id));
    Ok(found.collect())
}
