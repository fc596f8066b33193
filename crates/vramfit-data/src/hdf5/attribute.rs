//! The names of attributes, and the values of those that are numbers.

use vramfit_base::{Error, Result};

use super::cursor::Cursor;
use super::datatype::{Datatype, Scalar};
use super::group::dense;
use super::header::{Header, kind};

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

/// Returns the type and the little-endian bytes of the first number of an attribute, or `None` where there is no such attribute or it is no number.
///
/// # Errors
/// `invalid-file` when it is damaged.
pub(crate) fn number(header: &Header, wanted: &str) -> Result<Option<(Scalar, Vec<u8>)>> {
    let mut found = None;
    each(header, |cursor| {
        let Ok(mut cursor) = cursor else {
            return Ok(());
        };
        let mut start = cursor.clone();
        if name(&mut cursor)? == wanted {
            found = value(&mut start)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads the first number of an attribute from its message.
fn value(cursor: &mut Cursor<'_>) -> Result<Option<(Scalar, Vec<u8>)>> {
    let version = cursor.version(&[1, 2, 3], "an attribute")?;
    let flags = cursor.u8()?;
    let lengths = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(usize::from);
    cursor.skip(usize::from(version == 3))?;
    // Parts of the first version are padded.
    let padded = |length: usize| if version == 1 { length.next_multiple_of(8) } else { length };
    let [name, datatype, dataspace] = lengths.map(padded);
    cursor.skip(name)?;
    if version > 1 && flags & 1 != 0 {
        // Its type is kept elsewhere.
        return Ok(None);
    }
    let start = cursor.offset();
    let bytes = cursor.take(datatype)?;
    let datatype = Datatype::read(&mut Cursor::new(cursor.container, bytes, start))?;
    cursor.skip(dataspace)?;
    let Datatype::Numbers { size, numbers } = datatype else {
        return Ok(None);
    };
    if !numbers.axes.is_empty() || cursor.left() < size {
        return Ok(None);
    }
    let bytes = cursor.take(size)?;
    Ok(Some(numbers.number.decode(&bytes[numbers.offset..])))
}
