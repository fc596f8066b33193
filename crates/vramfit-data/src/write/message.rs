//! The messages that make up an object's header, and the header around them.
//!
//! Headers of version 2 and links inside of the group's header, which every HDF5 since 1.8 (2008)
//! reads. The layout message is version 3 with the chunk index of version 1: the one that also those
//! readers know that are no libhdf5. The order of fields is that of the format specification, 3.0.

use super::content::{Compression, Dataset, Storage};
use super::heap::Heap;
use super::number::Number;
use super::value::{Attribute, Value};
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

    /// Adds a member of a group, which is at an address.
    pub(super) fn link(&mut self, name: &str, address: u64) {
        // The character set is given, and is UTF-8; the length of the name takes two bytes.
        let mut body = vec![1, 0x11, 1];
        body.extend((name.len() as u16).to_le_bytes());
        body.extend(name.as_bytes());
        body.extend(address.to_le_bytes());
        self.add(LINK, &body);
    }

    /// Adds what a dataset is; `address` is that of its bytes, or of the index of its chunks.
    pub(super) fn dataset(&mut self, dataset: &Dataset, address: u64) {
        self.add(DATASPACE, &dataspace(&dataset.shape));
        self.add(DATATYPE, &dataset.number.datatype());
        let chunked = matches!(dataset.storage, Storage::Chunked { .. });
        // Room for chunks is taken when they are written, for all else when the file is.
        self.add(FILL_VALUE, &[3, if chunked { 0x0b } else { 0x0a }]);
        self.add(LAYOUT, &layout(dataset, address));
        if let Storage::Chunked { compression, .. } = dataset.storage
            && let Some(body) = filters(compression, dataset)
        {
            self.add(FILTERS, &body);
        }
    }

    /// Adds an attribute; texts of variable length go to the heap.
    pub(super) fn attribute(&mut self, (name, value): &Attribute, heap: &mut Heap) {
        let space = dataspace(&[]);
        let (datatype, data) = match value {
            Value::Text(text) => (text_datatype(), heap.add(text).to_vec()),
            Value::Integer(number) => (Number::I64.datatype(), number.to_le_bytes().to_vec()),
            Value::Real(number) => (Number::F64.datatype(), number.to_le_bytes().to_vec()),
        };
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

/// Returns a dataspace of version 2: dimensions, or a single value.
fn dataspace(shape: &[u64]) -> Vec<u8> {
    let mut body = vec![2, shape.len() as u8, 0, u8::from(!shape.is_empty())];
    body.extend(shape.iter().flat_map(|n| n.to_le_bytes()));
    body
}

fn contiguous(address: u64, length: u64) -> Vec<u8> {
    let mut body = vec![3, 1];
    body.extend(address.to_le_bytes());
    body.extend(length.to_le_bytes());
    body
}

fn layout(dataset: &Dataset, address: u64) -> Vec<u8> {
    let Some(chunk) = dataset.chunk() else {
        return contiguous(address, dataset.bytes());
    };
    // The bytes of an element count as one more dimension.
    let mut body = vec![3, 2, dataset.shape.len() as u8 + 1];
    body.extend(address.to_le_bytes());
    for length in chunk {
        body.extend((length as u32).to_le_bytes());
    }
    body.extend((dataset.number.size() as u32).to_le_bytes());
    body
}

/// Returns the filters of version 2, in the order in which they are applied; none where there are none.
fn filters(compression: Compression, dataset: &Dataset) -> Option<Vec<u8>> {
    let (id, level): (u16, u32) = match compression {
        Compression::None => return None,
        Compression::Gzip(level) => (1, level.min(9).into()),
        Compression::Zstd(level) => (32015, level.cast_unsigned()),
    };
    let steps = [(2, dataset.number.size() as u32), (id, level)];
    let mut body = vec![2, steps.len() as u8];
    for (id, parameter) in steps {
        body.extend(id.to_le_bytes());
        if id >= 256 {
            // The length of a name, which nobody needs.
            body.extend(0_u16.to_le_bytes());
        }
        // Flags: a reader without the filter fails. Then the parameters, one.
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
