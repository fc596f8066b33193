//! The names of attributes, and the values of those that are numbers or text.

use vramfit_base::{Error, Result};

use super::cursor::Cursor;
use super::dataspace::{Dataspace, checked_product};
use super::datatype::{ByteStorage, Datatype, Scalar};
use super::global_heap::GlobalHeap;
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

/// What an attribute is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AttributeValue {
    /// Numbers, in order: the type and the little-endian bytes of each.
    Numbers(Vec<(Scalar, Vec<u8>)>),
    /// One text.
    Text(String),
    /// Something else, with what it is.
    Other(String),
}

/// Returns what an attribute is, or `None` where there is no such attribute.
///
/// # Errors
/// `invalid-file` when it is damaged; `unsupported-feature` when it, or one that may be it, is kept outside of the object.
pub(crate) fn find(header: &Header, wanted: &str) -> Result<Option<AttributeValue>> {
    let mut found = None;
    each(header, |cursor| {
        let mut cursor = cursor?;
        let mut start = cursor.clone();
        if name(&mut cursor)? == wanted {
            found = Some(value(&mut start)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads the value of an attribute from its message.
fn value(cursor: &mut Cursor<'_>) -> Result<AttributeValue> {
    let version = cursor.version(&[1, 2, 3], "an attribute")?;
    let flags = cursor.u8()?;
    let lengths = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(usize::from);
    cursor.skip(usize::from(version == 3))?;
    // Parts of the first version are padded.
    let padded = |length: usize| if version == 1 { length.next_multiple_of(8) } else { length };
    let [name, datatype, dataspace] = lengths.map(padded);
    cursor.skip(name)?;
    if version > 1 && flags & 3 != 0 {
        return Err(Error::unsupported_feature("its type or shape is stored elsewhere"));
    }
    let mut part = |length: usize| -> Result<Cursor<'_>> {
        let start = cursor.offset();
        Ok(Cursor::new(cursor.container, cursor.take(length)?, start))
    };
    let datatype = Datatype::read(&mut part(datatype)?)?;
    let space = Dataspace::read(&mut part(dataspace)?)?;
    let count = if space.is_null { Some(0) } else { checked_product(1, &space.shape) };
    match datatype {
        Datatype::Numbers { size, numbers } if numbers.axes.is_empty() => {
            let length = count.and_then(|count| usize::try_from(count).ok()?.checked_mul(size));
            let bytes = cursor.take(length.unwrap_or(usize::MAX))?;
            let each = bytes.chunks_exact(size);
            let each = each.map(|bytes| numbers.number.decode(&bytes[numbers.offset..]));
            Ok(AttributeValue::Numbers(each.collect()))
        }
        Datatype::Other { size, bytes: Some(ByteStorage::Text), .. } if count == Some(1) => {
            Ok(AttributeValue::Text(text(cursor.take(size)?)))
        }
        Datatype::Other { what, bytes: Some(ByteStorage::Variable), .. }
            if count == Some(1) && what.contains("string") =>
        {
            let length = cursor.u32()? as usize;
            let Some(collection) = cursor.address()?.filter(|_| length > 0) else {
                return Ok(AttributeValue::Text(String::new()));
            };
            let number = cursor.u32()?;
            let mut heap = GlobalHeap::new(cursor.container);
            let (_, bytes) = heap.object(collection, number)?;
            Ok(AttributeValue::Text(text(&bytes[..length.min(bytes.len())])))
        }
        other => Ok(AttributeValue::Other(other.describe())),
    }
}

/// Returns a text without the zeros or spaces that it is padded with.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_owned()
}
