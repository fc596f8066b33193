//! Groups with many members, and objects with many attributes: a tree of identifiers, and a heap
//! that has what they identify.

use vramfit_base::Result;

use crate::hdf5::bounded_reader::BoundedReader;
use crate::hdf5::btree2;
use crate::hdf5::cursor::Cursor;
use crate::hdf5::fractal_heap::FractalHeap;

/// What a heap holds, and a tree lists by the hashes of names.
pub(crate) struct Dense {
    /// The message that says where heap and tree are.
    message: &'static str,
    /// Bytes of the highest creation order, which the message may have.
    order_bytes: usize,
    /// The type of the tree, and where in its records an identifier begins.
    tree: u8,
    id_offset: usize,
}

/// The members of a group. In the tree the hash of a name comes first.
pub(crate) const LINKS: Dense =
    Dense { message: "a link info message", order_bytes: 8, tree: 5, id_offset: 4 };

/// The attributes of an object.
pub(crate) const ATTRIBUTES: Dense =
    Dense { message: "an attribute info message", order_bytes: 2, tree: 8, id_offset: 0 };

/// No identifier is longer.
const MAX_ID_BYTES: usize = 8;

impl Dense {
    /// Reads the message, the tree and the heap, and returns where in the file each object is, and its bytes.
    pub(crate) fn objects<'a>(
        &self,
        mut cursor: Cursor<'a>,
    ) -> Result<impl Iterator<Item = Result<(u64, Vec<u8>)>> + use<'a>> {
        cursor.version(&[0], self.message)?;
        if cursor.u8()? & 1 != 0 {
            cursor.skip(self.order_bytes)?;
        }
        let container = cursor.container;
        let (mut heap, mut ids) = (None, Vec::new());
        if let (Some(heap_address), Some(index)) = (cursor.address()?, cursor.address()?) {
            let mut blocks = BoundedReader::new(container);
            heap = Some(FractalHeap::read(&mut blocks, heap_address)?);
            btree2::records(&mut blocks, index, &[self.tree], &mut |record| {
                record.skip(self.id_offset)?;
                let id = record.rest();
                ids.push(id[..id.len().min(MAX_ID_BYTES)].to_vec());
                Ok(())
            })?;
        }
        let ids = ids.into_iter();
        Ok(ids.filter_map(move |id| Some(heap.as_ref()?.object(container, &id))))
    }
}
