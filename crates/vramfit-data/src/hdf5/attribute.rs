//! Attributes, as far as a reader of numbers needs them: their names.

use vramfit_core::Result;

use super::blocks::Blocks;
use super::cursor::Cursor;
use super::group::dense_attribute_names;
use super::header::{Header, kind};

/// Returns the names of an object's attributes, sorted.
pub(crate) fn names(header: &Header) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for message in header.all(kind::ATTRIBUTE) {
        names.push(name(&mut header.cursor(message))?);
    }
    if let Some(message) = header.find(kind::ATTRIBUTE_INFO) {
        let mut cursor = header.cursor(message);
        cursor.version(&[0], "an attribute info message")?;
        if cursor.u8()? & 1 != 0 {
            cursor.skip(2)?;
        }
        let (heap, index) = (cursor.address()?, cursor.address()?);
        if let (Some(heap), Some(index)) = (heap, index) {
            let mut blocks = Blocks::new(cursor.container());
            names.extend(dense_attribute_names(&mut blocks, heap, index)?);
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the name of an attribute, from its message or from a heap.
pub(crate) fn name(cursor: &mut Cursor<'_>) -> Result<String> {
    let version = cursor.version(&[1, 2, 3], "an attribute")?;
    cursor.skip(1)?;
    let length = cursor.u16()?.into();
    // The lengths of type and shape, and since version 3 the encoding of the name.
    cursor.skip(if version == 3 { 5 } else { 4 })?;
    cursor.text(length)
}
