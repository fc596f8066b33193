//! Text and bytes of variable length: what the elements of a dataset refer to.

use vramfit_base::{Error, Result};

use super::column::Column;
use crate::hdf5::Container;
use crate::hdf5::cursor::Cursor;
use crate::hdf5::global_heap::GlobalHeap;
use crate::read::RowReader;

/// What an element of variable length says: how many bytes it has, and where they are.
struct Descriptor {
    length: u64,
    collection: Option<u64>,
    object: u32,
}

impl Descriptor {
    fn read(container: &Container, bytes: &[u8]) -> Result<Descriptor> {
        let mut cursor = Cursor::new(container, bytes, 0);
        let length = cursor.u32()?.into();
        let collection = cursor.address()?;
        Ok(Descriptor { length, collection, object: cursor.u32()? })
    }
}

/// Returns how many bytes all elements of a dataset refer to.
///
/// # Errors
/// All that reading can fail with.
pub(super) fn sum_lengths(rows: &RowReader) -> Result<u64> {
    let mut total = 0_u64;
    rows.for_each_row(|_, element| {
        let descriptor = Descriptor::read(rows.dataset().container(), element)?;
        total = total.saturating_add(descriptor.length);
        Ok(())
    })?;
    Ok(total)
}

/// Returns what elements of a dataset refer to.
///
/// # Errors
/// `invalid-file` when it is not there; all that reading can fail with.
pub(super) fn read_objects<'e>(
    column: &Column,
    container: &Container,
    elements: impl Iterator<Item = &'e [u8]>,
) -> Result<Vec<Vec<u8>>> {
    let mut heap = GlobalHeap::new(container);
    let read = |element: &[u8]| {
        let Descriptor { length, collection, object } = Descriptor::read(container, element)?;
        let Some(collection) = collection.filter(|_| length > 0) else {
            return Ok(Vec::new());
        };
        let (_, bytes) = heap.object(collection, object)?;
        match usize::try_from(length).ok().and_then(|length| bytes.get(..length)) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(Error::invalid_file(format!(
                "dataset `{}` is damaged: an element has {length} bytes, and {} are there",
                column.name(),
                bytes.len()
            ))),
        }
    };
    elements.map(read).collect()
}
