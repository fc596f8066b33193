//! The layout message: where the elements of a dataset are.

use vramfit_base::{Error, Result};

use super::cursor::Cursor;
use super::dataspace::MAX_AXES;

/// Where the elements of a dataset are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In the header itself.
    Compact(Vec<u8>),
    /// In one piece, or nowhere if none was ever written.
    Contiguous(Option<u64>),
    /// In chunks.
    Chunked(Chunked),
    /// In other datasets; the map is an object of a global heap.
    Virtual {
        /// Where the collection of the heap is.
        collection: u64,
        /// Number of the object in it.
        object: u32,
    },
}

/// How a dataset is cut into chunks, and what lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunked {
    /// Length of a chunk along each axis of the dataset.
    pub(crate) chunk: Vec<u64>,
    /// Size of an element in bytes, as this message has it.
    pub(crate) element: u64,
    /// Whether chunks that reach beyond the edge are stored without filters.
    pub(crate) plain_edges: bool,
    /// What lists the chunks.
    pub(crate) index: Index,
    /// Where that list is, or nowhere if no chunk was ever written.
    pub(crate) address: Option<u64>,
}

/// What lists the chunks of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// A tree, as all files before HDF5 1.10 have it.
    BTree1,
    /// There is one chunk; if it is filtered, its size and filter mask are here.
    Single(Option<(u64, u32)>),
    /// Nothing: all chunks lie one after another.
    Implicit,
    /// An array.
    FixedArray,
    /// An array that can grow along one axis.
    ExtensibleArray,
    /// A tree that can grow along several axes.
    BTree2,
}

impl Layout {
    /// Reads the message. Version 5 differs from 4 only in how the indexes write sizes.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Layout> {
        let version = cursor.version(&[1, 2, 3, 4, 5], "a layout")?;
        if version < 3 {
            return read_first(cursor);
        }
        match cursor.u8()? {
            0 => {
                let length = cursor.u16()?;
                Ok(Layout::Compact(cursor.take(length.into())?.to_vec()))
            }
            1 => Ok(Layout::Contiguous(cursor.address()?)),
            2 if version == 3 => {
                let axes = cursor.u8()?;
                read_listed(cursor, axes)
            }
            2 => read_indexed(cursor),
            3 if version >= 4 => Ok(Layout::Virtual {
                collection: cursor.known_address("the mapping of a virtual dataset")?,
                object: cursor.u32()?,
            }),
            class => {
                Err(Error::unsupported_feature(format!("layout class {class} is not supported")))
            }
        }
    }
}

fn read_first(cursor: &mut Cursor<'_>) -> Result<Layout> {
    let axes = cursor.u8()?;
    let class = cursor.u8()?;
    cursor.skip(5)?;
    match class {
        0 => {
            for _ in 0..axes {
                cursor.u32()?;
            }
            let length = cursor.u32()? as usize;
            Ok(Layout::Compact(cursor.take(length)?.to_vec()))
        }
        1 => Ok(Layout::Contiguous(cursor.address()?)),
        2 => read_listed(cursor, axes),
        class => Err(cursor.damaged(format_args!("layout class {class} is not supported"))),
    }
}

/// Reads how chunks are listed in a tree of version 1.
fn read_listed(cursor: &mut Cursor<'_>, axes: u8) -> Result<Layout> {
    let address = cursor.address()?;
    let chunk = read_chunk(cursor, axes, 4)?;
    chunked(cursor, chunk, false, Index::BTree1, address)
}

fn read_indexed(cursor: &mut Cursor<'_>) -> Result<Layout> {
    let flags = cursor.u8()?;
    let axes = cursor.u8()?;
    let width = cursor.u8()?;
    let chunk = read_chunk(cursor, axes, width.into())?;
    let index = match cursor.u8()? {
        1 if flags & 2 != 0 => Index::Single(Some((cursor.length()?, cursor.u32()?))),
        1 => Index::Single(None),
        2 => Index::Implicit,
        3 => {
            cursor.skip(1)?;
            Index::FixedArray
        }
        4 => {
            cursor.skip(5)?;
            Index::ExtensibleArray
        }
        5 => {
            cursor.skip(6)?;
            Index::BTree2
        }
        kind => {
            return Err(Error::unsupported_feature(format!(
                "chunk index type {kind} is not supported"
            )));
        }
    };
    let address = cursor.address()?;
    chunked(cursor, chunk, flags & 1 != 0, index, address)
}

/// Reads the lengths of a chunk; behind those of the axes comes the size of an element.
fn read_chunk(cursor: &mut Cursor<'_>, axes: u8, width: usize) -> Result<Vec<u64>> {
    if !(2..=MAX_AXES + 1).contains(&usize::from(axes)) {
        return Err(cursor.damaged(format_args!("a chunk has {axes} dimensions")));
    }
    (0..axes).map(|_| cursor.uint(width)).collect()
}

fn chunked(
    cursor: &Cursor<'_>,
    mut chunk: Vec<u64>,
    plain_edges: bool,
    index: Index,
    address: Option<u64>,
) -> Result<Layout> {
    if chunk.contains(&0) {
        return Err(cursor.damaged("a chunk has no elements"));
    }
    let element = chunk.pop().unwrap_or_default();
    Ok(Layout::Chunked(Chunked { chunk, element, plain_edges, index, address }))
}
