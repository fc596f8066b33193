//! Columns that say something about the rows of samples.

use crate::hdf5::Scalar;
use crate::sample::SampleIndex;

/// What such a column says of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DerivedKind {
    /// Whether it is a real row of the column, and no padding.
    Mask,
    /// Which part of a packed sample it belongs to, from 1; 0 for padding.
    SegmentIds,
    /// Where in that part it is, as far as the sample has it, from 0.
    Positions,
}

/// Such a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedColumn {
    /// What it says.
    pub kind: DerivedKind,
    /// The column whose rows it is about.
    pub column: usize,
    /// Rows of a sample.
    pub length: u64,
}

impl DerivedColumn {
    /// Returns the type of its elements.
    pub fn scalar(&self) -> Scalar {
        match self.kind {
            DerivedKind::Mask => Scalar::Bool,
            DerivedKind::SegmentIds | DerivedKind::Positions => Scalar::Int32,
        }
    }

    /// Returns the bytes of a sample.
    pub fn sample_bytes(&self) -> usize {
        self.length as usize * self.scalar().size()
    }

    /// Writes what it says of a sample.
    pub(super) fn fill(&self, samples: &SampleIndex, sample: u64, out: &mut [u8]) {
        out.fill(0);
        let span = samples.span(sample, self.column);
        let (start, end) = (span.real.start as usize, span.real.end as usize);
        if self.kind == DerivedKind::Mask {
            out[start..end].fill(1);
            return;
        }
        let Some(parts) = samples.parts() else {
            return;
        };
        let mut part = parts.partition_point(|&bound| bound <= span.rows.start).saturating_sub(1);
        let mut id = 1_i32;
        let (numbers, _) = out.as_chunks_mut::<4>();
        for (row, number) in span.rows.clone().zip(&mut numbers[start..end]) {
            let before = part;
            while parts.get(part + 1).is_some_and(|&end| end <= row) {
                part += 1;
            }
            id += i32::from(part != before);
            let value = match self.kind {
                DerivedKind::Positions => (row - parts[part].max(span.rows.start)) as i32,
                DerivedKind::SegmentIds | DerivedKind::Mask => id,
            };
            *number = value.to_le_bytes();
        }
    }
}
