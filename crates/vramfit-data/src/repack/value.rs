//! Values that are copied as a whole: attributes, single values, texts of variable length.

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::hdf5::Container;
use crate::hdf5::attribute::Attribute;
use crate::hdf5::cursor::Cursor;
use crate::hdf5::element_storage::{ElementStorage, TypeBytes};
use crate::hdf5::global_heap::GlobalHeap;
use crate::write::{Data, Datatype, RawValue, VarLenElement};

/// More than is copied as a whole of one file: it is in memory at once.
const MAX_BYTES: u64 = 64 << 20;

/// Reads values of one file, and counts their bytes.
pub(super) struct Values<'a> {
    container: &'a Container,
    heap: GlobalHeap<'a>,
    left: u64,
}

impl<'a> Values<'a> {
    pub(super) fn new(container: &'a Container) -> Self {
        Values {
            container,
            heap: GlobalHeap::new(container),
            left: MAX_BYTES,
        }
    }

    /// Reads the value of an attribute.
    ///
    /// # Errors
    ///
    /// `unsupported-feature` when it means something in this file only.
    pub(super) fn attribute(&mut self, attribute: Attribute) -> Result<RawValue> {
        let shape = (!attribute.space.is_null).then_some(attribute.space.shape);
        self.value(&attribute.datatype, shape, attribute.data)
    }

    /// Makes a value of elements as the file has them.
    ///
    /// # Errors
    ///
    /// As [`Values::attribute`].
    pub(super) fn value(
        &mut self,
        datatype: &TypeBytes,
        shape: Option<Vec<u64>>,
        elements: Vec<u8>,
    ) -> Result<RawValue> {
        self.take(elements.len() as u64)?;
        let data = match datatype.storage {
            ElementStorage::Inline => Data::Plain(elements),
            ElementStorage::GlobalHeap { unit } => {
                let size = datatype.element.size();
                let pieces = elements.chunks_exact(size);
                Data::VarLen(
                    pieces
                        .map(|element| self.varying(element, unit))
                        .collect::<Result<_>>()?,
                )
            }
            ElementStorage::FileAddress => return Err(elsewhere(datatype)),
        };
        Ok(RawValue {
            datatype: written(datatype),
            shape,
            data,
        })
    }

    /// Follows a reference to a text or a sequence.
    fn varying(&mut self, element: &[u8], unit: usize) -> Result<Option<VarLenElement>> {
        let mut cursor = Cursor::new(self.container, element, 0);
        let count = cursor.u32()?;
        let is_nowhere = cursor.clone().uint(self.container.address_width())? == 0;
        let Some(address) = cursor.address()?.filter(|_| !is_nowhere) else {
            return Ok(None);
        };
        let number = cursor.u32()?;
        let length = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(unit));
        let (at, bytes) = self.heap.object(address, number)?;
        let bytes = length.and_then(|length| bytes.get(..length));
        let Some(bytes) = bytes.map(<[u8]>::to_vec) else {
            let source = self.container.source();
            return Err(source.damaged(at, "a text is longer than its place"));
        };
        self.take(bytes.len() as u64)?;
        Ok(Some(VarLenElement { count, bytes }))
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::UnsupportedFeature,
                format!(
                    "attributes, single values and texts of more than {} are not copied",
                    Bytes(MAX_BYTES)
                ),
            )
            .hint("store texts with a fixed length, or as numbers")
        })?;
        Ok(())
    }
}

/// Returns how a type is described in the new file, where addresses have eight bytes.
pub(super) fn written(datatype: &TypeBytes) -> Datatype {
    /// The size of what refers to the heap there: a length, an address and a number.
    const REFERENCE: u32 = 16;
    let mut message = datatype.message.clone();
    let mut size = datatype.element.size();
    if let (ElementStorage::GlobalHeap { .. }, Some(place)) =
        (datatype.storage, message.get_mut(4..8))
    {
        place.copy_from_slice(&REFERENCE.to_le_bytes());
        size = REFERENCE as usize;
    }
    Datatype::copied(message, size, datatype.element.describe())
}

/// Returns why elements of a type are not copied.
pub(super) fn elsewhere(datatype: &TypeBytes) -> Error {
    let what = match datatype.element.describe() {
        what if what == "references" => what,
        what => format!("{what}, with references or texts of variable length inside"),
    };
    Error::new(
        ErrorKind::UnsupportedFeature,
        format!("{what} are not copied: they are addresses in the old file"),
    )
}
