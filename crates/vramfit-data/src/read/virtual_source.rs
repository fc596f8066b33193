//! The pieces of a virtual dataset: rows of other datasets, one behind the other.

use std::ops::Range;
use std::sync::Arc;

use vramfit_base::Result;

use super::dataset::Dataset;
use super::row_reader::RowReader;
use crate::hdf5::object::open_sibling;
use crate::hdf5::virtual_map::{Mapping, unsupported};
use crate::hdf5::{Container, Datatype};

/// Rows that are those of another dataset.
#[derive(Clone, Debug)]
pub struct VirtualSource {
    /// Which rows of the virtual dataset.
    pub rows: Range<u64>,
    /// Which row of the other is the first of them.
    pub first: u64,
    /// The other.
    pub dataset: Arc<Dataset>,
}

/// Opens the sources of a virtual dataset, in the order of their rows.
pub(super) fn open(
    container: &Container,
    shape: &[u64],
    datatype: &Datatype,
    mappings: &[Mapping],
) -> Result<Vec<VirtualSource>> {
    let mut pieces = Vec::new();
    for mapping in mappings {
        let file = match mapping.file.as_str() {
            "." => container.clone(),
            file => open_sibling(container, file)?,
        };
        let dataset = Dataset::open_source(&file, &mapping.dataset)?;
        if dataset.datatype() != datatype {
            return Err(unsupported("a source has a different datatype"));
        }
        let target = whole_rows(mapping.target.as_deref(), shape)?;
        let source = whole_rows(mapping.source.as_deref(), dataset.shape())?;
        if shape.get(1..) != dataset.shape().get(1..)
            || target.end - target.start != source.end - source.start
        {
            return Err(unsupported("a source has rows of a different shape"));
        }
        pieces.push(VirtualSource {
            rows: target,
            first: source.start,
            dataset: Arc::new(dataset),
        });
    }
    pieces.sort_by_key(|piece| piece.rows.start);
    if pieces.windows(2).any(|pair| pair[0].rows.end > pair[1].rows.start) {
        return Err(unsupported("two sources overlap"));
    }
    Ok(pieces)
}

/// Returns which rows a block is, where it is whole rows.
fn whole_rows(block: Option<&[(u64, u64)]>, shape: &[u64]) -> Result<Range<u64>> {
    let Some((&rows, columns)) = shape.split_first() else {
        return Err(unsupported("a source is a scalar"));
    };
    let Some(block) = block else {
        return Ok(0..rows);
    };
    let whole = block.len() == shape.len()
        && (block.iter().skip(1).zip(columns)).all(|(block, &length)| *block == (0, length));
    match block.first() {
        Some(&(start, length)) if whole => match start.checked_add(length) {
            Some(end) if end <= rows => Ok(start..end),
            _ => Err(unsupported("a source selection extends past the end of its dataset")),
        },
        _ => Err(unsupported("a source covers only a part of each row")),
    }
}

impl RowReader {
    /// Reads a range of a virtual dataset from those it is made of.
    pub(super) fn read_pieces(
        &self,
        pieces: &[VirtualSource],
        rows: Range<u64>,
        out: &mut [u8],
    ) -> Result<()> {
        let (mut next, mut rest) = (rows.start, out);
        for (piece, reader) in pieces.iter().zip(&self.pieces) {
            let start = piece.rows.start.clamp(next, rows.end);
            let end = piece.rows.end.clamp(start, rows.end);
            let (gap, behind) = rest.split_at_mut((start - next) as usize * self.row_bytes);
            self.fill(gap)?;
            let (here, behind) = behind.split_at_mut((end - start) as usize * self.row_bytes);
            if start < end {
                let first = start - piece.rows.start + piece.first;
                reader.read(first..first + (end - start), here)?;
            }
            (next, rest) = (end, behind);
        }
        self.fill(rest)
    }

    pub(super) fn gather_pieces(
        &self,
        pieces: &[VirtualSource],
        rows: &mut [(u64, &mut [u8])],
    ) -> Result<()> {
        let mut rest = rows;
        for (piece, reader) in pieces.iter().zip(&self.pieces) {
            let before = rest.partition_point(|(row, _)| *row < piece.rows.start);
            let (gap, behind) = rest.split_at_mut(before);
            gap.iter_mut().try_for_each(|(_, out)| self.fill(out))?;
            let within = behind.partition_point(|(row, _)| *row < piece.rows.end);
            let (here, behind) = behind.split_at_mut(within);
            for (row, _) in here.iter_mut() {
                *row = *row - piece.rows.start + piece.first;
            }
            reader.gather_sorted(here)?;
            rest = behind;
        }
        rest.iter_mut().try_for_each(|(_, out)| self.fill(out))
    }
}
