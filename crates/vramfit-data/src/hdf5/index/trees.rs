//! Trees of chunks, of both versions.

use vramfit_base::Result;

use super::Reading;
use crate::hdf5::bounded_reader::BoundedReader;
use crate::hdf5::btree1::{self, Node};
use crate::hdf5::btree2;

/// Records of chunks without filters, and with them.
const PLAIN: u8 = 10;
const FILTERED: u8 = 11;

/// Reads a tree of version 1.
pub(super) fn read_first(reading: &mut Reading<'_>, root: u64) -> Result<()> {
    let mut blocks = BoundedReader::new(reading.container);
    let axes = reading.grid.chunk.len();
    // Size, filter mask, where in the dataset it begins, and a zero for the axis of the bytes.
    let key_width = 8 + 8 * (axes + 1);
    btree1::leaves(&mut blocks, root, Node::Chunks, key_width, &mut |_, leaf| {
        let mut key = leaf.key;
        let size = key.u32()?.into();
        let filter_mask = key.u32()?;
        let mut place = Vec::with_capacity(axes);
        for &length in &reading.grid.chunk {
            let begin = key.u64()?;
            if begin % length != 0 {
                return Err(
                    key.damaged("the offset of a chunk is not a multiple of the chunk shape")
                );
            }
            place.push(begin / length);
        }
        reading.keep(reading.grid.index_at(place), leaf.child, size, filter_mask)
    })
}

/// Reads a tree of version 2.
pub(super) fn read_second(reading: &mut Reading<'_>, header: u64) -> Result<()> {
    let mut blocks = BoundedReader::new(reading.container);
    let axes = reading.grid.chunk.len();
    let kind = if reading.has_filters { FILTERED } else { PLAIN };
    btree2::records(&mut blocks, header, &[kind], &mut |record| {
        let address = record.known_address("a chunk")?;
        let (mut size, mut filter_mask) = (reading.grid.chunk_bytes, 0);
        if reading.has_filters {
            size = record.uint(record.left().saturating_sub(4 + 8 * axes))?;
            filter_mask = record.u32()?;
        }
        let place: Vec<u64> = (0..axes).map(|_| record.u64()).collect::<Result<_>>()?;
        reading.keep(reading.grid.index_at(place), address, size, filter_mask)
    })
}
