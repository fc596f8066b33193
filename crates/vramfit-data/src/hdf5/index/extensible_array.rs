//! Extensible arrays: the chunks of a dataset that can grow along one axis.
//!
//! The first elements are in the index block itself. Behind them come data blocks, which belong to
//! super blocks of growing size: super block `s` has `2^(s/2)` data blocks of `2^((s+1)/2)` times
//! the smallest number of elements. The data blocks of the first super blocks are listed in the
//! index block, those of the others in a super block of their own. Large data blocks have pages.

use vramfit_base::Result;

use super::Reading;
use super::fixed_array::is_set;
use crate::hdf5::bounded_reader::BoundedReader;
use crate::hdf5::cursor::Cursor;

/// The measures of an array.
struct Shape {
    /// Bytes of an element.
    element: usize,
    /// Bytes of the place that each block writes down of itself.
    place_width: usize,
    in_index: u64,
    smallest_block: u64,
    per_page: u64,
    /// How many super blocks there can be, and how many have their data blocks in the index block.
    super_blocks: u32,
    direct_super_blocks: u32,
}

/// Reads the array whose header is at an address.
pub(super) fn read(reading: &mut Reading<'_>, address: u64) -> Result<()> {
    let container = reading.container;
    let mut blocks = BoundedReader::new(container);
    let length = 16 + 6 * container.length_width + container.address_width;
    let bytes = blocks.read(address, length as u64)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"EAHD", 0, "an extensible array")?;
    let client = cursor.u8()?;
    let element = usize::from(cursor.u8()?);
    let bits = u32::from(cursor.u8()?);
    let in_index = cursor.u8()?.into();
    let smallest_block = u64::from(cursor.u8()?);
    let pointers = u64::from(cursor.u8()?);
    let page_bits = u32::from(cursor.u8()?);
    for _ in 0..6 {
        cursor.length()?;
    }
    let index = cursor.address()?;
    cursor.checksum()?;
    reading.check_array(&cursor, client, element)?;
    let sane = (1..=64).contains(&bits)
        && page_bits < 64
        && smallest_block.is_power_of_two()
        && pointers.is_power_of_two()
        && smallest_block.ilog2() < bits
        && 2 * pointers.ilog2() <= 1 + bits - smallest_block.ilog2();
    if !sane {
        return Err(cursor.damaged("the dimensions of an extensible array are inconsistent"));
    }
    let Some(index) = index else {
        return Ok(());
    };
    let shape = Shape {
        element,
        place_width: bits.div_ceil(8) as usize,
        in_index,
        smallest_block,
        per_page: 1 << page_bits,
        super_blocks: 1 + bits - smallest_block.ilog2(),
        direct_super_blocks: 2 * pointers.ilog2(),
    };
    read_index(reading, &mut blocks, &shape, index, pointers)
}

fn read_index(
    reading: &mut Reading<'_>,
    blocks: &mut BoundedReader<'_>,
    shape: &Shape,
    address: u64,
    pointers: u64,
) -> Result<()> {
    let container = reading.container;
    let width = container.address_width as u64;
    let direct = 2 * (pointers - 1);
    let further = u64::from(shape.super_blocks - shape.direct_super_blocks);
    let length = 10 + width + shape.in_index * shape.element as u64 + (direct + further) * width;
    let bytes = blocks.read(address, length)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"EAIB", 0, "the index block of an extensible array")?;
    cursor.skip(1)?;
    cursor.address()?;
    for number in 0..shape.in_index {
        reading.element(&mut cursor, number, shape.element)?;
    }
    let mut first = shape.in_index;
    for level in 0..shape.super_blocks {
        let (count, elements) = shape.super_block(level);
        if level < shape.direct_super_blocks {
            for _ in 0..count {
                if let Some(block) = cursor.address()? {
                    read_data(reading, blocks, shape, block, (first, elements), None)?;
                }
                first = first.saturating_add(elements);
            }
        } else {
            if let Some(block) = cursor.address()? {
                read_super(reading, blocks, shape, block, (first, level))?;
            }
            first = first.saturating_add(count.saturating_mul(elements));
        }
    }
    cursor.checksum()
}

fn read_super(
    reading: &mut Reading<'_>,
    blocks: &mut BoundedReader<'_>,
    shape: &Shape,
    address: u64,
    (mut first, level): (u64, u32),
) -> Result<()> {
    let container = reading.container;
    let width = container.address_width as u64;
    let (count, elements) = shape.super_block(level);
    // For each data block that has pages, a bit for each page.
    let bits = match elements > shape.per_page {
        true => (elements / shape.per_page).div_ceil(8),
        false => 0,
    };
    let length = count.saturating_mul(bits + width);
    let length = length.saturating_add(10 + width + shape.place_width as u64);
    let bytes = blocks.read(address, length)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"EASB", 0, "a super block of an extensible array")?;
    cursor.skip(1)?;
    cursor.address()?;
    cursor.skip(shape.place_width)?;
    let used = cursor.take((count * bits) as usize)?;
    for block in 0..count {
        if let Some(address) = cursor.address()? {
            let used = used.get((block * bits) as usize..((block + 1) * bits) as usize);
            let used = used.filter(|used| !used.is_empty());
            read_data(reading, blocks, shape, address, (first, elements), used)?;
        }
        first = first.saturating_add(elements);
    }
    cursor.checksum()
}

fn read_data(
    reading: &mut Reading<'_>,
    blocks: &mut BoundedReader<'_>,
    shape: &Shape,
    address: u64,
    (first, elements): (u64, u64),
    used: Option<&[u8]>,
) -> Result<()> {
    let container = reading.container;
    let head = 6 + container.address_width + shape.place_width;
    let here = if used.is_some() { 0 } else { elements };
    let length = here.saturating_mul(shape.element as u64);
    let bytes = blocks.read(address, length.saturating_add(head as u64 + 4))?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"EADB", 0, "a data block of an extensible array")?;
    cursor.skip(1)?;
    cursor.address()?;
    cursor.skip(shape.place_width)?;
    for number in first..first.saturating_add(here) {
        reading.element(&mut cursor, number, shape.element)?;
    }
    cursor.checksum()?;
    let Some(used) = used else {
        return Ok(());
    };
    let page_bytes = shape.per_page * shape.element as u64 + 4;
    for page in 0..elements / shape.per_page {
        if !is_set(used, page) {
            continue;
        }
        let address = address + head as u64 + 4 + page * page_bytes;
        let bytes = blocks.read(address, page_bytes)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        let first = first + page * shape.per_page;
        for number in first..first + shape.per_page {
            reading.element(&mut cursor, number, shape.element)?;
        }
        cursor.checksum()?;
    }
    Ok(())
}

impl Shape {
    /// Returns how many data blocks a super block has, and how many elements each of them.
    fn super_block(&self, level: u32) -> (u64, u64) {
        let elements = 1_u64.checked_shl(level.div_ceil(2)).unwrap_or(u64::MAX);
        (1 << (level / 2), elements.saturating_mul(self.smallest_block))
    }
}
