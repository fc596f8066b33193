//! The messages that make up an object's header, and the header around them.
//!
//! Headers of version 2 and links inside of the group's header, which every HDF5 since 1.8 (2008)
//! reads. The layout message is version 3 with the chunk index of version 1: the one that also those
//! readers know that are no libhdf5. The order of fields is that of the format specification, 3.0.

use super::content::{Attribute, Compression, Dataset, Storage, Value};
use super::heap::TextHeap;
use crate::hdf5::checksum::checksum;

/// "No address": nothing is there.
pub(super) const UNDEFINED: u64 = u64::MAX;

const DATASPACE: u8 = 0x01;
const LINK_INFO: u8 = 0x02;
const DATATYPE: u8 = 0x03;
const FILL_VALUE: u8 = 0x05;
const LINK: u8 = 0x06;
const LAYOUT: u8 = 0x08;
const GROUP_INFO: u8 = 0x0a;
const FILTERS: u8 = 0x0b;
const ATTRIBUTE: u8 = 0x0c;

/// An object's header, as messages are added to it.
#[derive(Debug, Default)]
pub(super) struct Header {
    messages: Vec<u8>,
}

impl Header {
    fn add(&mut self, kind: u8, body: &[u8]) {
        self.messages.push(kind);
        self.messages.extend((body.len() as u16).to_le_bytes());
        self.messages.push(0);
        self.messages.extend(body);
    }

    /// Returns the bytes of the header with its checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = b"OHDR".to_vec();
        // Version 2; the size of the messages takes four bytes.
        bytes.extend([2, 0x02]);
        bytes.extend((self.messages.len() as u32).to_le_bytes());
        bytes.extend(&self.messages);
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Adds what every group has.
    pub(super) fn group(&mut self) {
        let mut body = vec![0, 0];
        body.extend(UNDEFINED.to_le_bytes());
        body.extend(UNDEFINED.to_le_bytes());
        self.add(LINK_INFO, &body);
        self.add(GROUP_INFO, &[0, 0]);
    }

    /// Adds a member of a group.
    pub(super) fn link(&mut self, name: &str, address: u64) {
        // Version 1; the character set is given, and is UTF-8; the length takes one byte.
        let mut body = vec![1, 0x10, 1, name.len() as u8];
        body.extend(name.as_bytes());
        body.extend(address.to_le_bytes());
        self.add(LINK, &body);
    }

    /// Adds what a dataset is; `address` is that of its bytes, or of the index of its chunks.
    pub(super) fn dataset(&mut self, dataset: &Dataset, address: u64) {
        self.add(DATASPACE, &dataspace(&dataset.shape));
        self.add(DATATYPE, &dataset.number.datatype());
        let chunked = matches!(dataset.storage, Storage::Chunked { .. });
        // Version 3; zeros where nothing was written, which is nowhere.
        self.add(FILL_VALUE, &[3, if chunked { 0x0b } else { 0x0a }]);
        self.add(LAYOUT, &layout(dataset, address));
        if let Storage::Chunked { compression, .. } = dataset.storage
            && let Some(body) = filters(compression, dataset.number.size())
        {
            self.add(FILTERS, &body);
        }
    }

    /// Adds an attribute; its text goes to the heap.
    pub(super) fn attribute(&mut self, (name, value): &Attribute, heap: &mut TextHeap) {
        let (datatype, data) = match value {
            Value::Text(text) => (text_datatype(), heap.add(text)),
            Value::Integer(number) => (
                super::number::Number::I64.datatype(),
                number.to_le_bytes().to_vec(),
            ),
            Value::Real(number) => (
                super::number::Number::F64.datatype(),
                number.to_le_bytes().to_vec(),
            ),
        };
        let space = dataspace(&[]);
        let mut body = vec![3, 0];
        for len in [name.len() + 1, datatype.len(), space.len()] {
            body.extend((len as u16).to_le_bytes());
        }
        body.push(1);
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(datatype);
        body.extend(space);
        body.extend(data);
        self.add(ATTRIBUTE, &body);
    }
}

/// Returns a dataspace of version 2: fixed dimensions, or a single value.
fn dataspace(shape: &[u64]) -> Vec<u8> {
    let mut body = vec![2, shape.len() as u8, 0, u8::from(!shape.is_empty())];
    body.extend(shape.iter().flat_map(|n| n.to_le_bytes()));
    body
}

fn layout(dataset: &Dataset, address: u64) -> Vec<u8> {
    match dataset.storage {
        Storage::Contiguous => {
            let mut body = vec![3, 1];
            body.extend(address.to_le_bytes());
            body.extend(dataset.bytes().to_le_bytes());
            body
        }
        Storage::Chunked { rows, .. } => {
            // The bytes of a number count as one more dimension.
            let mut body = vec![3, 2, dataset.shape.len() as u8 + 1];
            body.extend(address.to_le_bytes());
            body.extend((rows as u32).to_le_bytes());
            for &n in &dataset.shape[1..] {
                body.extend((n as u32).to_le_bytes());
            }
            body.extend((dataset.number.size() as u32).to_le_bytes());
            body
        }
    }
}

/// Returns the filters of version 2: shuffle, then the compression; none where nothing is compressed.
fn filters(compression: Compression, size: usize) -> Option<Vec<u8>> {
    let (id, level) = match compression {
        Compression::None => return None,
        Compression::Gzip(level) => (1_u16, u32::from(level.min(9))),
        Compression::Zstd(level) => (32015, level.cast_unsigned()),
    };
    let mut body = vec![2, 2];
    for (id, parameter) in [(2_u16, size as u32), (id, level)] {
        body.extend(id.to_le_bytes());
        if id >= 256 {
            // The length of a name, which nobody needs.
            body.extend(0_u16.to_le_bytes());
        }
        // Flags: a reader without the filter fails; and one parameter.
        body.extend(0_u16.to_le_bytes());
        body.extend(1_u16.to_le_bytes());
        body.extend(parameter.to_le_bytes());
    }
    Some(body)
}

/// Returns the datatype of a text of any length in UTF-8, which `h5py` reads as `str`.
fn text_datatype() -> Vec<u8> {
    let mut body = vec![0x19, 0x01, 0x01, 0];
    body.extend(16_u32.to_le_bytes());
    // Made of texts of one character.
    body.extend([0x13, 0x10, 0, 0]);
    body.extend(1_u32.to_le_bytes());
    body
}
