//! The metadata block of a file: superblock, groups, datasets' headers, texts. Its size is known before the
//! data is, so it is written last and stands first, where a reader finds all of it in one read.

use std::collections::BTreeMap;

use super::content::{Content, Storage};
use super::groups::Groups;
use super::heap::Heap;
use super::message::{Header, UNDEFINED};
use crate::hdf5::checksum::checksum;

/// Data begins at a multiple of this, so that it can be mapped and read without the page cache.
const PAGE: u64 = 4096;

const SUPERBLOCK_BYTES: u64 = 48;

/// Where the data of each dataset begins that is not in chunks, and where chunks may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// For each dataset its address, or none when it is in chunks.
    pub(super) contiguous: Vec<Option<u64>>,
    /// The first byte behind all of those.
    pub(super) chunks: u64,
}

/// Lays out what comes before the chunks.
pub(super) fn places(content: &Content) -> Offsets {
    let unknown = vec![UNDEFINED; content.datasets.len()];
    let mut at = (encode(content, &unknown, 0).len() as u64).next_multiple_of(PAGE);
    let contiguous = content
        .datasets
        .iter()
        .map(|dataset| {
            (dataset.storage == Storage::Contiguous).then(|| {
                if dataset.bytes() == 0 {
                    return UNDEFINED;
                }
                let address = at;
                at = (at + dataset.bytes()).next_multiple_of(PAGE);
                address
            })
        })
        .collect();
    Offsets { contiguous, chunks: at }
}

/// Returns the metadata block; `addresses` are those of the data of each dataset or of its chunk index.
pub(super) fn encode(content: &Content, addresses: &[u64], end_of_file: u64) -> Vec<u8> {
    // The lengths do not depend on the addresses, so a first pass with none of them finds them all.
    let groups = Groups::of(content);
    let mut places = BTreeMap::new();
    let mut heap_at = 0;
    let mut objects = Vec::new();
    for _ in 0..2 {
        let mut heap = Heap::new(heap_at);
        objects = groups.encode(content, &places, &mut heap);
        for (dataset, &address) in content.datasets.iter().zip(addresses) {
            let mut header = Header::default();
            header.dataset(dataset, address);
            objects.push((dataset.path.clone(), header.encode()));
        }
        let mut at = SUPERBLOCK_BYTES;
        for (path, bytes) in &mut objects {
            places.insert(path.clone(), at);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            at += bytes.len() as u64;
        }
        heap_at = at;
        objects.push((String::new(), heap.encode()));
    }

    let mut block = superblock(SUPERBLOCK_BYTES, end_of_file);
    for (_, bytes) in objects {
        block.extend(bytes);
    }
    block
}

/// Returns a superblock of version 2, the newest that HDF5 1.8 reads.
fn superblock(root: u64, end_of_file: u64) -> Vec<u8> {
    let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
    // Addresses and lengths have eight bytes; nobody else has the file open.
    bytes.extend([2, 8, 8, 0]);
    for address in [0, UNDEFINED, end_of_file, root] {
        bytes.extend(address.to_le_bytes());
    }
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}
