//! The index of a dataset's chunks: a B-tree of version 1, built at once from chunks in order.
//!
//! Newer indexes are smaller, but need HDF5 1.10 and are unknown to many readers that are no libhdf5.
//! A tree that is written once is dense and stands in one piece, so it is read at one go.

use super::content::Dataset;
use super::message::UNDEFINED;

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// Children of a node: twice the `K` of 32 that a file has unless it says otherwise.
const NODE_CHILDREN: usize = 64;

/// A node's children: the key in front of each, and its address.
type NodeEntries = Vec<(Vec<u8>, u64)>;

/// Returns the nodes of the tree and the address of its root; `address` is where the nodes will be.
/// Without chunks there is no tree.
pub(super) fn tree(dataset: &Dataset, chunks: &[Chunk], address: u64) -> (Vec<u8>, u64) {
    if chunks.is_empty() {
        return (Vec::new(), UNDEFINED);
    }
    let rank = dataset.shape.len();
    let end = key(dataset, chunks.len() as u64, 0, true);
    let key_bytes = end.len();
    let node_bytes = (24 + NODE_CHILDREN * (key_bytes + 8) + key_bytes) as u64;
    debug_assert_eq!(key_bytes, 8 + 8 * (rank + 1));

    let mut children: NodeEntries = chunks
        .iter()
        .enumerate()
        .map(|(at, chunk)| (key(dataset, at as u64, chunk.bytes, false), chunk.address))
        .collect();
    let mut bytes = Vec::new();
    let mut level = 0;
    loop {
        let mut parents: NodeEntries = Vec::new();
        let nodes = children.len().div_ceil(NODE_CHILDREN);
        for (at, node) in children.chunks(NODE_CHILDREN).enumerate() {
            let here = address + bytes.len() as u64;
            let left = if at == 0 { u64::MAX } else { here - node_bytes };
            let right = if at + 1 == nodes { u64::MAX } else { here + node_bytes };
            let next = children.get((at + 1) * NODE_CHILDREN).map_or(&end, |(key, _)| key);
            let start = bytes.len();
            // Type 1: of chunks.
            bytes.extend(b"TREE\x01");
            bytes.push(level);
            bytes.extend((node.len() as u16).to_le_bytes());
            bytes.extend(left.to_le_bytes());
            bytes.extend(right.to_le_bytes());
            for (key, child) in node {
                bytes.extend(key);
                bytes.extend(child.to_le_bytes());
            }
            bytes.extend(next);
            bytes.resize(start + node_bytes as usize, 0);
            parents.push((node[0].0.clone(), here));
        }
        if let [(_, root)] = parents[..] {
            return (bytes, root);
        }
        children = parents;
        level += 1;
    }
}

/// Returns a chunk's key: its stored size, the filters that were left out (none), and where it begins
/// in each dimension, the bytes of a number being one. The key behind the last chunk begins one chunk
/// further in every dimension, as libhdf5 writes it.
fn key(dataset: &Dataset, chunk: u64, bytes: u32, end: bool) -> Vec<u8> {
    let lengths = dataset.chunk().unwrap_or_else(|| dataset.shape.clone());
    let mut key = bytes.to_le_bytes().to_vec();
    key.extend(0_u32.to_le_bytes());
    key.extend((chunk * lengths[0]).to_le_bytes());
    for &n in &lengths[1..] {
        key.extend((if end { n } else { 0 }).to_le_bytes());
    }
    let size = dataset.number.size() as u64;
    key.extend((if end { size } else { 0 }).to_le_bytes());
    key
}
