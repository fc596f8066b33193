//! Virtual datasets: which rows are those of which other dataset.
//!
//! Only what concatenates is understood: each source is one block, with whole rows on both sides.

use vramfit_base::{Error, Result};

use super::container::Container;
use super::cursor::Cursor;
use super::dataspace::MAX_AXES;
use super::global_heap::GlobalHeap;

/// One dataset that a virtual one is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The file it is in; `.` for the same.
    pub(crate) file: String,
    /// Its path in that file.
    pub(crate) dataset: String,
    /// What is taken of it: where it begins and how long it is along each axis, or all of it.
    pub(crate) source: Option<Vec<(u64, u64)>>,
    /// Where that is put, likewise.
    pub(crate) target: Option<Vec<(u64, u64)>>,
}

/// Reads the map, which is an object of a global heap.
pub(crate) fn read(container: &Container, collection: u64, object: u32) -> Result<Vec<Mapping>> {
    let mut heap = GlobalHeap::new(container);
    let (address, bytes) = heap.object(collection, object)?;
    let mut cursor = Cursor::new(container, bytes, address);
    if cursor.u8()? != 0 {
        return Err(unsupported("the version of its mapping is not supported"));
    }
    let count = cursor.length()?;
    let mut mappings = Vec::new();
    for _ in 0..count {
        let (file, dataset) = (cursor.terminated_text()?, cursor.terminated_text()?);
        if file.contains('%') || dataset.contains('%') {
            return Err(unsupported("its source names contain a block number"));
        }
        mappings.push(Mapping {
            file,
            dataset,
            source: read_selection(&mut cursor)?,
            target: read_selection(&mut cursor)?,
        });
    }
    cursor.checksum()?;
    Ok(mappings)
}

pub(crate) fn unsupported(why: &str) -> Error {
    Error::unsupported_feature(format!(
        "virtual datasets are supported only where they join whole rows: {why}"
    ))
    .hint("read its sources, or copy it into an ordinary dataset")
}

/// Reads a selection that is one block: its start and length along each axis. `None` is everything.
fn read_selection(cursor: &mut Cursor<'_>) -> Result<Option<Vec<(u64, u64)>>> {
    let kind = cursor.u32()?;
    let version = cursor.u32()?;
    match (kind, version) {
        (3, _) => cursor.skip(8).map(|()| None),
        (2, 1) => {
            cursor.skip(8)?;
            let axes = read_axes(cursor)?;
            if cursor.u32()? != 1 {
                return Err(unsupported("a source selection has several blocks"));
            }
            let mut corner =
                || -> Result<Vec<u64>> { (0..axes).map(|_| Ok(cursor.u32()?.into())).collect() };
            let (first, last) = (corner()?, corner()?);
            let lengths = first.iter().zip(&last).map(|(first, last)| {
                let length = last.checked_sub(*first).map(|length| (*first, length + 1));
                length.ok_or_else(|| cursor.damaged("a block of a selection ends before it starts"))
            });
            lengths.collect::<Result<_>>().map(Some)
        }
        (2, 2 | 3) => {
            let flags = cursor.u8()?;
            let width = match version {
                2 => {
                    cursor.skip(4)?;
                    8
                }
                _ => cursor.u8()?.into(),
            };
            let axes = read_axes(cursor)?;
            if flags & 1 == 0 {
                return Err(unsupported("a source selection is irregular"));
            }
            let axes = (0..axes).map(|_| {
                let (start, stride) = (cursor.uint(width)?, cursor.uint(width)?);
                let (count, block) = (cursor.uint(width)?, cursor.uint(width)?);
                // Without limit is written as the largest number of its width.
                let unlimited = u64::MAX >> (64 - 8 * width.clamp(1, 8));
                if count == unlimited || block == unlimited {
                    return Err(unsupported("a source selection is unlimited"));
                }
                match count {
                    1 => Ok((start, block)),
                    _ if stride == block => match count.checked_mul(block) {
                        Some(length) => Ok((start, length)),
                        None => Err(unsupported("a source selection is unlimited")),
                    },
                    _ => Err(unsupported("a source selection has several blocks")),
                }
            });
            axes.collect::<Result<_>>().map(Some)
        }
        _ => Err(unsupported("a source selection has an unknown type")),
    }
}

fn read_axes(cursor: &mut Cursor<'_>) -> Result<u32> {
    let axes = cursor.u32()?;
    match axes as usize <= MAX_AXES {
        true => Ok(axes),
        false => Err(cursor.damaged(format_args!("a selection has {axes} dimensions"))),
    }
}
