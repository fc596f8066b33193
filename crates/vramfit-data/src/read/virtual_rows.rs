//! Reading the rows of a virtual dataset from those of its sources.

use std::ops::Range;

use vramfit_base::Result;

use super::row_reader::RowReader;
use super::virtual_source::{Placement, VirtualSource};

impl RowReader {
    /// Reads a range of a virtual dataset from those it is made of.
    pub(super) fn read_pieces(
        &self,
        pieces: &[VirtualSource],
        rows: Range<u64>,
        out: &mut [u8],
    ) -> Result<()> {
        if !are_rows(pieces) {
            let places = out.chunks_exact_mut(self.row_bytes.max(1));
            return self.gather_elements(pieces, &mut rows.zip(places).collect::<Vec<_>>());
        }
        let (mut next, mut rest) = (rows.start, out);
        for (piece, reader) in pieces.iter().zip(&self.pieces) {
            let start = piece.rows.start.clamp(next, rows.end);
            let end = piece.rows.end.clamp(start, rows.end);
            let (gap, behind) = rest.split_at_mut((start - next) as usize * self.row_bytes);
            self.fill(gap)?;
            let (here, behind) = behind.split_at_mut((end - start) as usize * self.row_bytes);
            if start < end {
                let first = start - piece.rows.start + first_row(piece);
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
        if !are_rows(pieces) {
            return self.gather_elements(pieces, rows);
        }
        let mut rest = rows;
        for (piece, reader) in pieces.iter().zip(&self.pieces) {
            let before = rest.partition_point(|(row, _)| *row < piece.rows.start);
            let (gap, behind) = rest.split_at_mut(before);
            gap.iter_mut().try_for_each(|(_, out)| self.fill(out))?;
            let within = behind.partition_point(|(row, _)| *row < piece.rows.end);
            let (here, behind) = behind.split_at_mut(within);
            for (row, _) in here.iter_mut() {
                *row = *row - piece.rows.start + first_row(piece);
            }
            reader.gather_sorted(here)?;
            rest = behind;
        }
        rest.iter_mut().try_for_each(|(_, out)| self.fill(out))
    }

    /// Reads rows, which are sorted, whose elements are in several sources.
    fn gather_elements(
        &self,
        pieces: &[VirtualSource],
        rows: &mut [(u64, &mut [u8])],
    ) -> Result<()> {
        rows.iter_mut().try_for_each(|(_, out)| self.fill(out))?;
        for (piece, reader) in pieces.iter().zip(&self.pieces) {
            let start = rows.partition_point(|(row, _)| *row < piece.rows.start);
            let end = rows.partition_point(|(row, _)| *row < piece.rows.end);
            if let Placement::Elements(map) = &piece.placement {
                map.copy_rows(reader, &mut rows[start..end])?;
            }
        }
        Ok(())
    }
}

/// Whether the rows of sources are rows of the virtual dataset.
fn are_rows(pieces: &[VirtualSource]) -> bool {
    pieces.iter().all(|piece| matches!(piece.placement, Placement::Rows(_)))
}

/// Returns which row of a source is the first of the virtual dataset's.
fn first_row(piece: &VirtualSource) -> u64 {
    match piece.placement {
        Placement::Rows(first) => first,
        Placement::Elements(_) => 0,
    }
}
