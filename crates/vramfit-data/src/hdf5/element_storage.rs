//! Whether the elements of a datatype are stored inline or refer to other parts of the file: what can be copied
//! byte by byte, what has to be followed, and what cannot be copied into another file.

use vramfit_core::{Error, Result};

use super::cursor::Cursor;
use super::datatype::{Datatype, MAX_TYPE_DEPTH, bytes_for, descend, read_name};

/// Where the elements of a type are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementStorage {
    /// Inline: the bytes are the whole value.
    Inline,
    /// In the heap: each is a reference to a text, or to a sequence of elements of so many bytes.
    GlobalHeap {
        /// Bytes of one element of a sequence; 1 for texts.
        unit: usize,
    },
    /// At an address of the file that means nothing in another.
    FileAddress,
}

/// A datatype message.
#[derive(Clone, Debug)]
pub(crate) struct DatatypeMessage {
    /// Its bytes, without padding.
    pub(crate) message: Vec<u8>,
    /// The datatype it describes.
    pub(crate) parsed: Datatype,
    /// Where its elements are.
    pub(crate) storage: ElementStorage,
}

impl DatatypeMessage {
    /// Reads the message, which may be padded.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<DatatypeMessage> {
        let all = cursor.rest();
        let parsed = Datatype::read(&mut cursor.clone())?;
        let storage = read(cursor, MAX_TYPE_DEPTH)?;
        let message = all[..all.len() - cursor.left()].to_vec();
        Ok(DatatypeMessage {
            message,
            parsed,
            storage,
        })
    }
}

/// Reads how a datatype and those nested in it are stored.
fn read(cursor: &mut Cursor<'_>, depth: usize) -> Result<ElementStorage> {
    let depth = descend(depth)?;
    let first = cursor.u8()?;
    let (version, class) = (first >> 4, first & 0xf);
    let bits = cursor.uint(3)? as usize;
    let size = cursor.u32()? as usize;
    match class {
        // Integers and bit fields, floats, times, texts.
        0 | 4 => cursor.skip(4)?,
        1 => cursor.skip(12)?,
        2 => cursor.skip(2)?,
        3 => {}
        // The tag of opaque bytes.
        5 => cursor.skip(bits & 0xff)?,
        6 => return read_record(cursor, version, bits & 0xffff, size, depth),
        7 => {
            // References of HDF5 1.12 and later are told in the bits, too; nothing follows.
            return Ok(ElementStorage::FileAddress);
        }
        8 => {
            let base = read(cursor, depth)?;
            for _ in 0..bits & 0xffff {
                read_name(cursor, version)?;
            }
            cursor.skip((bits & 0xffff) * size)?;
            return Ok(base);
        }
        9 => {
            let unit = cursor.clone();
            let inside = read(cursor, depth)?;
            return Ok(match inside {
                ElementStorage::Inline => ElementStorage::GlobalHeap {
                    unit: size_of_type(unit)?,
                },
                _ => ElementStorage::FileAddress,
            });
        }
        10 => {
            let axes = usize::from(cursor.u8()?);
            // Version 2 has padding, and a permutation that nobody uses.
            cursor.skip(if version < 3 { 3 + 8 * axes } else { 4 * axes })?;
            return Ok(inner(read(cursor, depth)?));
        }
        11 => return Ok(inner(read(cursor, depth)?)),
        class => {
            return Err(Error::unsupported_feature(format!(
                "datatype class {class} is not supported"
            )));
        }
    }
    Ok(ElementStorage::Inline)
}

fn read_record(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: usize,
    size: usize,
    depth: usize,
) -> Result<ElementStorage> {
    let mut storage = ElementStorage::Inline;
    for _ in 0..count {
        read_name(cursor, version)?;
        match version {
            // The offset; and in version 1 what an array as a field was.
            1 => cursor.skip(4 + 28)?,
            2 => cursor.skip(4)?,
            _ => cursor.skip(bytes_for(size as u64))?,
        }
        if inner(read(cursor, depth)?) == ElementStorage::FileAddress {
            storage = ElementStorage::FileAddress;
        }
    }
    Ok(storage)
}

/// What is in another type can be copied only if its bytes are all there is.
fn inner(storage: ElementStorage) -> ElementStorage {
    match storage {
        ElementStorage::Inline => ElementStorage::Inline,
        _ => ElementStorage::FileAddress,
    }
}

/// Returns the size that a type says it has.
fn size_of_type(mut cursor: Cursor<'_>) -> Result<usize> {
    cursor.skip(4)?;
    Ok(cursor.u32()? as usize)
}
