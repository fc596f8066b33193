//! The messages that make up an object's header, and the header around them.
//!
//! Headers of version 2 and links inside of the group's header, which every HDF5 since 1.8 (2008)
//! reads. The layout message is version 3 with the chunk index of version 1: the one that also those
//! readers know that are no libhdf5. The order of fields is that of the format specification, 3.0.

use super::content::{Compression, Dataset, Storage};
use super::datatype::EncodedDatatype;
use super::heap::Heap;
use super::number::Number;
use super::value::{Attribute, Data, REFERENCE_BYTES, RawValue, Value, VarLenElement};
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
const REFERENCE_COUNT: u8 = 0x16;

/// Where a member of a group is, or leads.
pub(super) enum LinkTarget<'a> {
    Object(u64),
    Soft(&'a str),
    External { file: &'a str, path: &'a str },
}

/// Where the elements of an inline dataset are stored.
pub(super) enum DataLocation {
    /// In the header.
    Inline(Vec<u8>),
    /// At an address, and so many bytes.
    Address(u64, u64),
}

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

    /// Adds by how many names the object is known, unless it is one. An object whose last name is removed is
    /// removed, too, so this must be right.
    pub(super) fn names(&mut self, count: u32) {
        if count > 1 {
            let mut body = vec![0];
            body.extend(count.to_le_bytes());
            self.add(REFERENCE_COUNT, &body);
        }
    }

    /// Adds what every group has. `members` counts those whose order is kept; none where it is not.
    pub(super) fn group(&mut self, members: Option<usize>) {
        let mut body = vec![0, u8::from(members.is_some())];
        if let Some(members) = members {
            body.extend((members as u64).to_le_bytes());
        }
        body.extend(UNDEFINED.to_le_bytes());
        body.extend(UNDEFINED.to_le_bytes());
        self.add(LINK_INFO, &body);
        self.add(GROUP_INFO, &[0, 0]);
    }

    /// Adds a member of a group; `place` is the one that it has in the order of the group.
    pub(super) fn link(&mut self, name: &str, to: &LinkTarget<'_>, place: Option<u64>) {
        let (kind, target) = match to {
            LinkTarget::Object(address) => (None, address.to_le_bytes().to_vec()),
            LinkTarget::Soft(path) => (Some(1), sized(path.as_bytes())),
            // A version, then two texts that end with a zero.
            LinkTarget::External { file, path } => {
                (Some(64), sized(format!("\0{file}\0{path}\0").as_bytes()))
            }
        };
        // The character set is given, and is UTF-8; the length of the name takes two bytes.
        let mut flags = 0x11;
        flags |= if place.is_some() { 0x04 } else { 0 };
        flags |= if kind.is_some() { 0x08 } else { 0 };
        let mut body = vec![1, flags];
        body.extend(kind);
        body.extend(place.into_iter().flat_map(u64::to_le_bytes));
        body.push(1);
        body.extend(sized(name.as_bytes()));
        body.extend(target);
        self.add(LINK, &body);
    }

    /// Adds what a dataset is; `address` is that of its bytes, or of the index of its chunks.
    pub(super) fn dataset(&mut self, dataset: &Dataset, address: u64) {
        self.add(DATASPACE, &dataspace(Some(&dataset.shape), &dataset.max_shape));
        self.add(DATATYPE, &dataset.datatype.message);
        let chunked = matches!(dataset.storage, Storage::Chunked { .. });
        self.add(FILL_VALUE, &fill_value(dataset.fill.as_deref(), chunked));
        self.add(LAYOUT, &layout(dataset, address));
        if let Storage::Chunked { compression, .. } = dataset.storage
            && let Some(body) = filters(compression, dataset)
        {
            self.add(FILTERS, &body);
        }
    }

    /// Adds the messages of an inline dataset; `data` are its elements, or their address.
    pub(super) fn inline_object(&mut self, value: &RawValue, data: &DataLocation) {
        self.add(DATASPACE, &dataspace(value.shape.as_deref(), &[]));
        self.add(DATATYPE, &value.datatype.message);
        // Elements in the header are there from the beginning on.
        let early = matches!(data, DataLocation::Inline(_));
        self.add(FILL_VALUE, &[3, if early { 0x09 } else { 0x0a }]);
        let layout = match data {
            DataLocation::Inline(bytes) => [vec![3, 0], sized(bytes)].concat(),
            DataLocation::Address(address, length) => contiguous(*address, *length),
        };
        self.add(LAYOUT, &layout);
    }

    /// Adds what a type is that has a name.
    pub(super) fn named_type(&mut self, datatype: &EncodedDatatype) {
        self.add(DATATYPE, &datatype.message);
    }

    /// Adds an attribute; texts of variable length go to the heap.
    pub(super) fn attribute(&mut self, (name, value): &Attribute, heap: &mut Heap) {
        let single = |datatype: Vec<u8>, data: &[u8]| {
            let space = dataspace(Some(&[]), &[]);
            (datatype, space, data.to_vec())
        };
        let (datatype, space, data) = match value {
            Value::Text(text) => {
                let varying =
                    VarLenElement { count: text.len() as u32, bytes: text.clone().into_bytes() };
                single(text_datatype(), &heap.add(&varying))
            }
            Value::Integer(number) => single(Number::I64.datatype(), &number.to_le_bytes()),
            Value::Real(number) => single(Number::F64.datatype(), &number.to_le_bytes()),
            Value::Raw(value) => (
                value.datatype.message.clone(),
                dataspace(value.shape.as_deref(), &[]),
                elements(&value.data, heap),
            ),
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

/// Returns bytes with their number in front, which takes two bytes.
fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes(), bytes].concat()
}

/// Returns the bytes of elements; what has no fixed length goes to the heap.
pub(super) fn elements(data: &Data, heap: &mut Heap) -> Vec<u8> {
    match data {
        Data::Plain(bytes) => bytes.clone(),
        Data::VarLen(pieces) => pieces
            .iter()
            .flat_map(|piece| match piece {
                Some(piece) => heap.add(piece),
                None => [0; REFERENCE_BYTES],
            })
            .collect(),
    }
}

/// Returns a dataspace of version 2: dimensions, a single value, or no value at all.
fn dataspace(shape: Option<&[u64]>, max_shape: &[u64]) -> Vec<u8> {
    let Some(shape) = shape else {
        return vec![2, 0, 0, 2];
    };
    let kind = u8::from(!shape.is_empty());
    let mut body = vec![2, shape.len() as u8, u8::from(!max_shape.is_empty()), kind];
    body.extend(shape.iter().chain(max_shape).flat_map(|n| n.to_le_bytes()));
    body
}

/// Returns the fill value of version 3. Room for chunks is taken when they are written, for all else
/// when the file is; the value itself only where it is not zeros.
fn fill_value(fill: Option<&[u8]>, chunked: bool) -> Vec<u8> {
    let flags = if chunked { 0x0b } else { 0x0a };
    let Some(fill) = fill else {
        return vec![3, flags];
    };
    let mut body = vec![3, flags | 0x20];
    body.extend((fill.len() as u32).to_le_bytes());
    body.extend(fill);
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
    body.extend((dataset.datatype.size as u32).to_le_bytes());
    body
}

/// Returns the filters of version 2, in the order in which they are applied; none where there are none.
fn filters(compression: Compression, dataset: &Dataset) -> Option<Vec<u8>> {
    let compression: Option<(u16, u32)> = match compression {
        Compression::None => None,
        Compression::Gzip(level) => Some((1, level.min(9).into())),
        Compression::Zstd(level) => Some((32015, level.cast_unsigned())),
        // The size of its blocks; zero leaves it to the plugin.
        Compression::Lz4 => Some((32004, 0)),
    };
    let shuffle = compression.filter(|_| dataset.shuffle);
    let steps = [
        shuffle.map(|_| (2, Some(dataset.datatype.size as u32))),
        compression.map(|(id, parameter)| (id, Some(parameter))),
        dataset.checksums.then_some((3, None)),
    ];
    let steps: Vec<(u16, Option<u32>)> = steps.into_iter().flatten().collect();
    if steps.is_empty() {
        return None;
    }
    let mut body = vec![2, steps.len() as u8];
    for (id, parameter) in steps {
        body.extend(id.to_le_bytes());
        if id >= 256 {
            // The length of a name, which nobody needs.
            body.extend(0_u16.to_le_bytes());
        }
        // Flags: a reader without the filter fails. Then the parameters, at most one.
        body.extend(0_u16.to_le_bytes());
        body.extend(u16::from(parameter.is_some()).to_le_bytes());
        body.extend(parameter.into_iter().flat_map(u32::to_le_bytes));
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
