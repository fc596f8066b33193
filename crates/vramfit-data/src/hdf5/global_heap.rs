//! Global heaps: where texts and sequences of variable length are kept, and maps of virtual datasets.

use std::collections::HashMap;
use std::ops::Range;

use vramfit_base::Result;

use super::bounded_reader::BoundedReader;
use super::container::Container;
use super::cursor::Cursor;

/// The collections of a file that were looked into. Each is read once, and together they are no longer
/// than the file.
pub(crate) struct GlobalHeap<'a> {
    blocks: BoundedReader<'a>,
    collections: HashMap<u64, Collection>,
}

/// Its bytes, and where in them each object is.
struct Collection {
    bytes: Vec<u8>,
    objects: HashMap<u32, Range<usize>>,
}

impl<'a> GlobalHeap<'a> {
    /// Begins with no collection read.
    pub(crate) fn new(container: &'a Container) -> Self {
        GlobalHeap { blocks: BoundedReader::new(container), collections: HashMap::new() }
    }

    /// Returns where in the file an object is, and its bytes.
    ///
    /// # Errors
    /// `invalid-file` when it is not there.
    pub(crate) fn object(&mut self, address: u64, number: u32) -> Result<(u64, &[u8])> {
        if !self.collections.contains_key(&address) {
            let collection = self.read(address)?;
            self.collections.insert(address, collection);
        }
        let container = self.blocks.container;
        let collection = self.collections.get(&address);
        let found = collection.and_then(|collection| {
            let place = collection.objects.get(&number)?;
            Some((place.start as u64, &collection.bytes[place.clone()]))
        });
        match found {
            Some((offset, bytes)) => Ok((address + offset, bytes)),
            None => {
                Err(container.damaged(address, format_args!("heap object {number} does not exist")))
            }
        }
    }

    fn read(&mut self, address: u64) -> Result<Collection> {
        let container = self.blocks.container;
        let head = 8 + container.length_width as u64;
        let bytes = self.blocks.read(address, head)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.structure(b"GCOL", 1, "a global heap")?;
        cursor.skip(3)?;
        let length = cursor.length()?;
        let mut bytes = bytes;
        let rest = length.saturating_sub(head);
        bytes.extend(self.blocks.read(address + head, rest)?);
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.skip(head as usize)?;
        let mut objects = HashMap::new();
        while cursor.left() >= 8 + container.length_width {
            let number = cursor.u16()?;
            cursor.skip(6)?;
            let length = cursor.length()?;
            // Object zero is the free space behind the last one.
            if number == 0 {
                break;
            }
            let start = (cursor.offset() - address) as usize;
            let length = cursor.take(usize::try_from(length).unwrap_or(usize::MAX))?.len();
            objects.insert(number.into(), start..start + length);
            // The last object of a collection may end without padding.
            cursor.skip((length.next_multiple_of(8) - length).min(cursor.left()))?;
        }
        Ok(Collection { bytes, objects })
    }
}
