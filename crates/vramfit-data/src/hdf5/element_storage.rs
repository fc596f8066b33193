//! Whether the elements of a datatype are stored inline or refer to other parts of the file: what can be copied
//! byte by byte, what has to be followed, and what cannot be copied into another file.

use vramfit_core::Result;

use super::cursor::Cursor;
use super::datatype::Datatype;

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

impl ElementStorage {
    /// What is in another type can be copied only if its bytes are all there is.
    pub(super) fn nested(self) -> ElementStorage {
        match self {
            ElementStorage::Inline => ElementStorage::Inline,
            _ => ElementStorage::FileAddress,
        }
    }
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
        let (parsed, storage) = Datatype::read_with_storage(cursor)?;
        let message = all[..all.len() - cursor.left()].to_vec();
        Ok(DatatypeMessage { message, parsed, storage })
    }
}
