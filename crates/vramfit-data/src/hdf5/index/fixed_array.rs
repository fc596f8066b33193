//! Fixed arrays: the chunks of a dataset that cannot grow.

use vramfit_base::Result;

use super::Reading;
use crate::hdf5::bounded_reader::BoundedReader;
use crate::hdf5::cursor::Cursor;

/// Reads the array whose header is at an address.
pub(super) fn read(reading: &mut Reading<'_>, address: u64) -> Result<()> {
    let container = reading.container;
    let mut blocks = BoundedReader::new(container);
    let width = container.address_width;
    let length = 12 + container.length_width + width;
    let bytes = blocks.read(address, length as u64)?;
    let mut cursor = Cursor::new(container, &bytes, address);
    cursor.structure(b"FAHD", 0, "a fixed array")?;
    let client = cursor.u8()?;
    let element = usize::from(cursor.u8()?);
    let page_bits = cursor.u8()?;
    let count = cursor.length()?;
    let block = cursor.address()?;
    cursor.checksum()?;
    reading.check_array(&cursor, client, element)?;
    let Some(block) = block else {
        return Ok(());
    };
    let per_page = 1_u64.checked_shl(page_bits.into()).unwrap_or(u64::MAX);
    let pages = match count > per_page {
        true => count.div_ceil(per_page),
        false => 0,
    };
    // Signature, version, client, the header's address, and a bit for each page.
    let head = 6 + width as u64 + pages.div_ceil(8);
    if pages == 0 {
        let length = count.saturating_mul(element as u64).saturating_add(head + 4);
        let bytes = blocks.read(block, length)?;
        let mut cursor = Cursor::new(container, &bytes, block);
        read_head(&mut cursor)?;
        for number in 0..count {
            reading.element(&mut cursor, number, element)?;
        }
        return cursor.checksum();
    }
    let bytes = blocks.read(block, head + 4)?;
    let mut cursor = Cursor::new(container, &bytes, block);
    read_head(&mut cursor)?;
    let used = cursor.take(pages.div_ceil(8) as usize)?;
    cursor.checksum()?;
    let page_bytes = per_page.saturating_mul(element as u64).saturating_add(4);
    for page in 0..pages {
        // A page that no chunk was written to has its place, and nothing in it.
        if !is_set(used, page) {
            continue;
        }
        let first = page * per_page;
        let here = per_page.min(count - first);
        let offset = page.saturating_mul(page_bytes).saturating_add(head + 4);
        let address = block.saturating_add(offset);
        let bytes = blocks.read(address, here * element as u64 + 4)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        for number in first..first + here {
            reading.element(&mut cursor, number, element)?;
        }
        cursor.checksum()?;
    }
    Ok(())
}

fn read_head(cursor: &mut Cursor<'_>) -> Result<()> {
    cursor.structure(b"FADB", 0, "the data block of a fixed array")?;
    cursor.skip(1)?;
    cursor.address().map(drop)
}

/// Whether a bit is set; the first is the highest of the first byte.
pub(super) fn is_set(bits: &[u8], bit: u64) -> bool {
    let byte = bits.get((bit / 8) as usize);
    byte.is_some_and(|byte| byte & (0x80 >> (bit % 8)) != 0)
}
