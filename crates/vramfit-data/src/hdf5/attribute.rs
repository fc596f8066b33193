//! The names of attributes.

use vramfit_base::{Error, Result};

use super::cursor::Cursor;
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
