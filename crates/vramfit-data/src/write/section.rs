//! The order in which a file is written: section by section, each of them piece by piece.

use std::ops::Range;

use vramfit_core::{Error, Result};

use super::content::{Content, Dataset, Storage};

/// Datasets whose rows are written side by side, so many at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which of the content's datasets. They have equally many rows.
    pub datasets: Range<usize>,
    /// Rows of a piece: whole chunks of every one of the datasets.
    pub piece_rows: u64,
}

/// What is written at once: a stretch of rows of each dataset of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the order of all.
    pub number: u64,
    /// Which datasets.
    pub datasets: Range<usize>,
    /// Which rows of each.
    pub rows: Range<u64>,
}

pub(super) const UNEQUAL_ROWS: &str =
    "datasets that are written together must have the same number of rows";
pub(super) const UNEQUAL_CHUNKS: &str =
    "chunks that are written together must have the same number of rows";

/// Where every piece of a file is.
#[derive(Clone, Debug)]
pub(crate) struct PieceOrder {
    /// Each section with its rows, and the number of its first piece.
    sections: Vec<(Section, u64, u64)>,
    /// How many pieces there are.
    pub(crate) pieces: u64,
}

impl PieceOrder {
    /// Numbers the pieces.
    ///
    /// # Errors
    /// `invalid-argument` when the datasets of a section do not belong together.
    pub(crate) fn new(content: &Content, sections: &[Section]) -> Result<Self> {
        let mut pieces = 0;
        let mut numbered = Vec::new();
        for section in sections {
            let datasets = content.datasets.get(section.datasets.clone());
            let datasets = datasets.unwrap_or_default();
            let Some(rows) = datasets.first().map(Dataset::rows) else {
                return Err(Error::invalid_argument("a section contains no dataset"));
            };
            if datasets.iter().any(|dataset| dataset.rows() != rows) {
                return Err(Error::invalid_argument(UNEQUAL_ROWS));
            }
            for dataset in datasets {
                if let Storage::Chunked { rows, .. } = dataset.storage
                    && !section.piece_rows.is_multiple_of(rows)
                {
                    return Err(Error::invalid_argument(UNEQUAL_CHUNKS));
                }
            }
            let bytes: u64 = datasets.iter().map(Dataset::bytes).sum();
            numbered.push((section.clone(), rows, pieces));
            // Where there is nothing to write there is no piece.
            pieces += rows.div_ceil(section.piece_rows.max(1)) * u64::from(bytes > 0);
        }
        Ok(PieceOrder { sections: numbered, pieces })
    }

    /// Returns a piece; past the last one an empty piece of the last section.
    pub(crate) fn piece(&self, number: u64) -> Piece {
        let at = self.sections.partition_point(|(_, _, first)| *first <= number);
        // Sections without pieces begin where the next one does, which is taken.
        let (section, rows, first) = &self.sections[at.saturating_sub(1)];
        let start = ((number - first) * section.piece_rows).min(*rows);
        Piece {
            number,
            datasets: section.datasets.clone(),
            rows: start..(start + section.piece_rows).min(*rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Number;

    #[test]
    fn pieces_go_through_all_sections_and_leave_out_what_is_empty() {
        let dataset =
            |path: &str, rows| Dataset::new(path, Number::U8, vec![rows], Storage::Contiguous);
        let content = Content {
            datasets: vec![dataset("a", 5), dataset("b", 0), dataset("c", 2)],
            ..Content::default()
        };
        let section = |at, piece_rows| Section { datasets: at..at + 1, piece_rows };
        let order = PieceOrder::new(&content, &[section(0, 2), section(1, 4), section(2, 9)]);
        let order = order.unwrap();
        let seen: Vec<_> = (0..order.pieces)
            .map(|number| order.piece(number))
            .map(|piece| (piece.datasets.start, piece.rows))
            .collect();
        assert_eq!(seen, [(0, 0..2), (0, 2..4), (0, 4..5), (2, 0..2)]);
    }
}
