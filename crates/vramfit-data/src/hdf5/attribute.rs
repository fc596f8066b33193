//! Attributes: their names, and their values byte by byte.

use vramfit_core::{Error, Result};

use super::container::Container;
use super::cursor::Cursor;
use super::dataspace::{Dataspace, checked_product};
use super::element_storage::DatatypeMessage;
use super::group::dense;
use super::header::{self, Header, kind};

/// An attribute as the file has it.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    /// What an element is.
    pub(crate) datatype: DatatypeMessage,
    pub(crate) space: Dataspace,
    /// The elements.
    pub(crate) data: Vec<u8>,
}

/// Returns the names of an object's attributes, sorted.
pub(crate) fn names(header: &Header) -> Result<Vec<String>> {
    let mut names = Vec::new();
    each(header, |cursor| {
        names.push(name(&mut cursor?)?);
        Ok(())
    })?;
    names.sort();
    Ok(names)
}

/// Returns an object's attributes by name; of one that cannot be read, why. One that not even has a name
/// that can be read has an empty one.
pub(crate) fn all(header: &Header) -> Result<Vec<(String, Result<Attribute>)>> {
    let mut all = Vec::new();
    each(header, |cursor| {
        all.push(match cursor {
            Ok(cursor) => (name(&mut cursor.clone()).unwrap_or_default(), read(cursor)),
            Err(error) => (String::new(), Err(error)),
        });
        Ok(())
    })?;
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(all)
}

/// Goes through the attributes, wherever they are kept.
fn each(header: &Header, mut work: impl FnMut(Result<Cursor<'_>>) -> Result<()>) -> Result<()> {
    for message in header.all(kind::ATTRIBUTE) {
        work(match message.is_shared() {
            false => Ok(header.cursor(message)),
            true => Err(Error::unsupported_feature("it is stored in the shared message table")),
        })?;
    }
    let Some(message) = header.find(kind::ATTRIBUTE_INFO) else {
        return Ok(());
    };
    let cursor = header.cursor(message);
    let container = cursor.container;
    for found in dense::ATTRIBUTES.objects(cursor)? {
        match found {
            Ok((address, bytes)) => work(Ok(Cursor::new(container, &bytes, address)))?,
            Err(error) => work(Err(error))?,
        }
    }
    Ok(())
}

/// Reads the name of an attribute, from its message or from a heap.
fn name(cursor: &mut Cursor<'_>) -> Result<String> {
    let version = cursor.version(&[1, 2, 3], "an attribute")?;
    cursor.skip(1)?;
    let length = cursor.u16()?.into();
    // The lengths of type and shape, and since version 3 the encoding of the name.
    cursor.skip(if version == 3 { 5 } else { 4 })?;
    cursor.text(length)
}

/// Reads the value of an attribute.
fn read(mut cursor: Cursor<'_>) -> Result<Attribute> {
    let container = cursor.container;
    let version = cursor.version(&[1, 2, 3], "an attribute")?;
    let flags = cursor.u8()?;
    let lengths = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(usize::from);
    if version == 3 {
        cursor.skip(1)?;
    }
    let [_, datatype, space] = {
        let mut part = |length: usize| {
            let part = Cursor::new(container, cursor.take(length)?, 0);
            // The first version pads each part to eight bytes.
            if version == 1 {
                cursor.skip(length.next_multiple_of(8) - length)?;
            }
            Ok(part)
        };
        [part(lengths[0])?, part(lengths[1])?, part(lengths[2])?]
    };
    let datatype = part(datatype, flags & 1 != 0, kind::DATATYPE, DatatypeMessage::read)?;
    let space = part(space, flags & 2 != 0, kind::DATASPACE, Dataspace::read)?;
    let elements = match space.is_null {
        true => Some(0),
        false => checked_product(1, &space.shape),
    };
    let bytes = elements
        .and_then(|elements| elements.checked_mul(datatype.parsed.size() as u64))
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| cursor.damaged("the size of an attribute is out of range"))?;
    Ok(Attribute { datatype, space, data: cursor.take(bytes)?.to_vec() })
}

/// Reads a part of an attribute, which may be kept in another object's header.
fn part<T>(
    mut cursor: Cursor<'_>,
    is_shared: bool,
    kind: u16,
    read: impl Fn(&mut Cursor<'_>) -> Result<T>,
) -> Result<T> {
    if !is_shared {
        return read(&mut cursor);
    }
    let (message, container): (_, &Container) = header::find_shared(cursor, kind)?;
    read(&mut message.cursor(container))
}
