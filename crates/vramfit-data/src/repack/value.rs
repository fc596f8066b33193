//! Values that are copied in memory: attributes, scalars, variable-length strings.

use vramfit_core::{Bytes, Error, Result};

use crate::hdf5::Container;
use crate::hdf5::attribute::Attribute;
use crate::hdf5::cursor::Cursor;
use crate::hdf5::element_storage::{DatatypeMessage, ElementStorage};
use crate::hdf5::global_heap::GlobalHeap;
use crate::write::{Data, EncodedDatatype, RawValue, VarLenElement};

/// The maximum of all values of one file together, which are in memory at once.
const MAX_BYTES: u64 = 64 << 20;

/// Reads values of one file, and counts their bytes.
pub(super) struct Values<'a> {
    container: &'a Container,
    heap: GlobalHeap<'a>,
    left: u64,
}

impl<'a> Values<'a> {
    pub(super) fn new(container: &'a Container) -> Self {
        Values { container, heap: GlobalHeap::new(container), left: MAX_BYTES }
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

    /// Returns the value of elements in their stored form.
    ///
    /// # Errors
    ///
    /// As [`Values::attribute`].
    pub(super) fn value(
        &mut self,
        datatype: &DatatypeMessage,
        shape: Option<Vec<u64>>,
        elements: Vec<u8>,
    ) -> Result<RawValue> {
        self.take(elements.len() as u64)?;
        let data = match datatype.storage {
            ElementStorage::Inline => Data::Plain(elements),
            ElementStorage::GlobalHeap { unit } => {
                let size = datatype.parsed.size();
                let pieces = elements.chunks_exact(size);
                Data::VarLen(
                    pieces.map(|element| self.varying(element, unit)).collect::<Result<_>>()?,
                )
            }
            ElementStorage::FileAddress => return Err(elsewhere(datatype)),
        };
        Ok(RawValue { datatype: encode_datatype(datatype), shape, data })
    }

    /// Follows a reference to a string or a sequence.
    fn varying(&mut self, element: &[u8], unit: usize) -> Result<Option<VarLenElement>> {
        let mut cursor = Cursor::new(self.container, element, 0);
        let count = cursor.u32()?;
        let is_nowhere = cursor.clone().uint(self.container.address_width)? == 0;
        let Some(address) = cursor.address()?.filter(|_| !is_nowhere) else {
            return Ok(None);
        };
        let number = cursor.u32()?;
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(unit));
        let (at, bytes) = self.heap.object(address, number)?;
        let bytes = length.and_then(|length| bytes.get(..length));
        let Some(bytes) = bytes.map(<[u8]>::to_vec) else {
            return Err(self.container.damaged(at, "a string exceeds its heap object"));
        };
        self.take(bytes.len() as u64)?;
        Ok(Some(VarLenElement { count, bytes }))
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::unsupported_feature(format!(
                "attributes, scalars and strings of more than {} in total are not copied",
                Bytes(MAX_BYTES)
            ))
            .hint("store strings with a fixed length, or as numbers")
        })?;
        Ok(())
    }
}

/// Returns how a type is described in the new file, where addresses have eight bytes.
pub(super) fn encode_datatype(datatype: &DatatypeMessage) -> EncodedDatatype {
    /// The size of what refers to the heap there: a length, an address and a number.
    const REFERENCE: u32 = 16;
    let mut message = datatype.message.clone();
    let mut size = datatype.parsed.size();
    if let (ElementStorage::GlobalHeap { .. }, Some(place)) =
        (datatype.storage, message.get_mut(4..8))
    {
        place.copy_from_slice(&REFERENCE.to_le_bytes());
        size = REFERENCE as usize;
    }
    EncodedDatatype { size, name: datatype.parsed.describe(), message }
}

/// Returns why elements of a type are not copied.
pub(super) fn elsewhere(datatype: &DatatypeMessage) -> Error {
    let what = match datatype.parsed.describe() {
        what if what == "references" => what,
        what => format!("{what} with nested references or variable-length strings"),
    };
    Error::unsupported_feature(format!(
        "{what} are not copied: they contain addresses of the old file"
    ))
}
