//! Object headers: the list of messages that describes a group, a dataset or a named type.

use vramfit_base::{Error, Result};

use super::bounded_reader::BoundedReader;
use super::container::Container;
use super::cursor::Cursor;

/// Kinds of messages, by the numbers of the format.
pub(crate) mod kind {
    pub(crate) const DATASPACE: u16 = 0x01;
    pub(crate) const LINK_INFO: u16 = 0x02;
    pub(crate) const DATATYPE: u16 = 0x03;
    pub(crate) const OLD_FILL: u16 = 0x04;
    pub(crate) const FILL: u16 = 0x05;
    pub(crate) const LINK: u16 = 0x06;
    pub(crate) const EXTERNAL_FILES: u16 = 0x07;
    pub(crate) const LAYOUT: u16 = 0x08;
    pub(crate) const FILTERS: u16 = 0x0b;
    pub(crate) const ATTRIBUTE: u16 = 0x0c;
    pub(crate) const CONTINUATION: u16 = 0x10;
    pub(crate) const SYMBOL_TABLE: u16 = 0x11;
    pub(crate) const ATTRIBUTE_INFO: u16 = 0x15;
    pub(crate) const CACHE_IMAGE: u16 = 0x18;
    /// The last kind that the format knows.
    pub(crate) const LAST: u16 = CACHE_IMAGE;
}

/// The message refers to another header, which holds it for several.
const SHARED: u8 = 0x02;
/// The object means something else to a reader that does not know this message.
const MUST_UNDERSTAND: u8 = 0x80;
/// More messages than any object has; attributes beyond a few dozen are kept elsewhere.
const MAX_MESSAGES: usize = 1 << 16;

/// Returns the message of a kind that another object's header holds for several, given what refers to it.
///
/// # Errors
///
/// `unsupported-feature` when it is kept in the file's table of shared messages.
pub(crate) fn find_shared(mut cursor: Cursor<'_>, kind: u16) -> Result<(Message, &Container)> {
    let container = cursor.container;
    let version = cursor.version(&[1, 2, 3], "a shared message")?;
    let place = cursor.u8()?;
    if version == 1 {
        // The rest is an entry of a group, which begins with the place of a name.
        cursor.skip(6)?;
        cursor.length()?;
    }
    if version == 3 && place == 1 {
        return Err(Error::unsupported_feature("the shared message table is not supported")
            .hint("rewrite the file without them: `h5repack old.h5 new.h5`"));
    }
    let address = cursor.known_address("a shared message")?;
    let mut other = Header::read(container, address)?;
    match other.messages.iter().position(|m| m.kind == kind) {
        // One that is shared again could go round in a circle; the format has no such thing.
        Some(found) if other.messages[found].flags & SHARED == 0 => {
            Ok((other.messages.swap_remove(found), container))
        }
        _ => Err(container.damaged(address, format_args!("message {kind:#x} is missing"))),
    }
}

/// One message, not yet understood.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    flags: u8,
    /// Where in the file `body` begins.
    offset: u64,
    body: Vec<u8>,
}

impl Message {
    /// Whether it is a reference to another object's message.
    pub(crate) fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }

    /// Begins to read it.
    pub(crate) fn cursor<'a>(&'a self, container: &'a Container) -> Cursor<'a> {
        Cursor::new(container, &self.body, self.offset)
    }
}

/// All messages of one object.
#[derive(Debug)]
pub(crate) struct Header {
    container: Container,
    address: u64,
    messages: Vec<Message>,
}

impl Header {
    pub(crate) fn read(container: &Container, address: u64) -> Result<Header> {
        let mut header = Header { container: container.clone(), address, messages: Vec::new() };
        let mut blocks = BoundedReader::new(container);
        let mut signature = [0; 4];
        container.read_structure(address, &mut signature)?;
        if &signature == b"OHDR" {
            header.read_new(&mut blocks)?;
        } else {
            header.read_old(&mut blocks)?;
        }
        Ok(header)
    }

    /// Returns where in the file it is.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the first message of a kind.
    pub(crate) fn find(&self, kind: u16) -> Option<&Message> {
        self.messages.iter().find(|message| message.kind == kind)
    }

    /// Returns all messages of a kind.
    pub(crate) fn all(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.kind == kind)
    }

    /// Begins to read a message of this header.
    pub(crate) fn cursor<'a>(&'a self, message: &'a Message) -> Cursor<'a> {
        message.cursor(&self.container)
    }

    /// Replaces a message that is kept in another object's header by what it says there.
    ///
    /// # Errors
    ///
    /// `unsupported-feature` when it is kept in the file's table of shared messages.
    pub(crate) fn resolve(mut self, kind: u16) -> Result<Header> {
        let Some(index) = self.messages.iter().position(|m| m.kind == kind) else {
            return Ok(self);
        };
        if self.messages[index].flags & SHARED == 0 {
            return Ok(self);
        }
        let (found, _) = find_shared(self.cursor(&self.messages[index]), kind)?;
        self.messages[index] = found;
        Ok(self)
    }

    /// Returns an error that a message is missing.
    pub(crate) fn without(&self, what: &str) -> Error {
        self.container.damaged(self.address, format_args!("the object has no {what}"))
    }

    fn read_old(&mut self, blocks: &mut BoundedReader<'_>) -> Result<()> {
        let bytes = blocks.read(self.address, 16)?;
        let mut cursor = Cursor::new(blocks.container, &bytes, self.address);
        cursor.version(&[1], "an object header")?;
        cursor.skip(1)?;
        // The number of messages is not needed: the blocks say where they end.
        cursor.skip(6)?;
        let length = cursor.u32()?.into();
        let mut open = vec![(self.address + 16, length)];
        while let Some((address, length)) = open.pop() {
            let bytes = blocks.read(address, length)?;
            let mut cursor = Cursor::new(blocks.container, &bytes, address);
            while cursor.left() >= 8 {
                let kind = cursor.u16()?;
                let length = cursor.u16()?;
                let flags = cursor.u8()?;
                cursor.skip(3)?;
                self.keep(&mut cursor, kind, flags, length, &mut open)?;
            }
        }
        Ok(())
    }

    fn read_new(&mut self, blocks: &mut BoundedReader<'_>) -> Result<()> {
        let source = blocks.container.source();
        let prefix = source.length().saturating_sub(self.address).min(34);
        let mut bytes = vec![0; prefix as usize];
        blocks.container.read_structure(self.address, &mut bytes)?;
        let mut cursor = Cursor::new(blocks.container, &bytes, self.address);
        cursor.structure(b"OHDR", 2, "an object header")?;
        let flags = cursor.u8()?;
        if flags & 0x20 != 0 {
            cursor.skip(16)?;
        }
        if flags & 0x10 != 0 {
            cursor.skip(4)?;
        }
        let length = cursor.uint(1 << (flags & 3))?;
        let first = cursor.offset() - self.address;
        let whole = length.checked_add(first + 4);
        let whole =
            whole.ok_or_else(|| cursor.damaged("the address of a header is out of range"))?;
        let mut open = vec![(self.address, whole)];
        let mut skip = first as usize;
        while let Some((address, length)) = open.pop() {
            let bytes = blocks.read(address, length)?;
            let Some(end) = bytes.len().checked_sub(4).filter(|&end| end >= skip) else {
                return Err(source.damaged(address, "a header block is too short"));
            };
            let mut whole = Cursor::new(blocks.container, &bytes, address);
            whole.skip(end)?;
            whole.checksum()?;
            let mut cursor = Cursor::new(blocks.container, &bytes[..end], address);
            if address != self.address {
                cursor.signature(b"OCHK")?;
            }
            cursor.skip(skip - (cursor.offset() - address) as usize)?;
            let prefix = if flags & 0x04 != 0 { 6 } else { 4 };
            // A gap at the end is shorter than the smallest message.
            while cursor.left() >= prefix {
                let kind = cursor.u8()?.into();
                let length = cursor.u16()?;
                let message_flags = cursor.u8()?;
                cursor.skip(prefix - 4)?;
                self.keep(&mut cursor, kind, message_flags, length, &mut open)?;
            }
            skip = 4;
        }
        Ok(())
    }

    fn keep(
        &mut self,
        cursor: &mut Cursor<'_>,
        kind: u16,
        flags: u8,
        length: u16,
        open: &mut Vec<(u64, u64)>,
    ) -> Result<()> {
        let offset = cursor.offset();
        let body = cursor.take(length.into())?;
        if kind == kind::CONTINUATION {
            let mut cursor = Cursor::new(cursor.container, body, offset);
            let address = cursor.known_address("the continuation of an object header")?;
            open.push((address, cursor.length()?));
            return Ok(());
        }
        if kind > kind::LAST && flags & MUST_UNDERSTAND != 0 {
            return Err(Error::unsupported_feature(format!(
                "a mandatory message has the unknown type {kind:#x}"
            )));
        }
        if self.messages.len() == MAX_MESSAGES {
            return Err(cursor.damaged("the object has too many messages"));
        }
        self.messages.push(Message { kind, flags, offset, body: body.to_vec() });
        Ok(())
    }
}
