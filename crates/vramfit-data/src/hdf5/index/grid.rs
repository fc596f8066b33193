//! The chunks of a shape: how many there are along each axis, and how they are numbered.

use std::ops::Range;
use std::sync::Arc;

use crate::hdf5::dataspace::checked_product;

/// How a shape is cut into chunks.
///
/// Chunks have an *index*, by the shape as it is now, and a *number*, by the shape as large as it may
/// become: that is how the arrays of the file count them, so that nothing moves when it grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Length of a chunk along each axis.
    pub(crate) chunk: Vec<u64>,
    /// Size of a chunk in bytes, before it is filtered.
    pub(crate) chunk_bytes: u64,
    /// How many chunks there are along each axis, and together.
    pub(crate) lengths: Vec<u64>,
    pub(crate) count: u64,
    /// The shape, and the size of an element in bytes.
    shape: Vec<u64>,
    element: u64,
    /// As `lengths`, for the shape as large as it may become. The axis without a limit comes first.
    max_lengths: Vec<u64>,
    /// Which axis that is.
    unlimited: usize,
    /// The grid that it is part of, at an index of the first axis of that one.
    parent: Option<Arc<Parent>>,
}

/// The grid that another is part of, with one axis more.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parent {
    grid: Grid,
    /// The index in it of the first chunk.
    first_chunk: u64,
    /// Where the part begins in a chunk, in bytes.
    offset: u64,
    /// Whether chunks reach beyond the edge of the first axis.
    is_edge: bool,
}

impl Grid {
    /// Cuts a shape. `None` where the number of chunks or the size of one has no 64 bits.
    pub(crate) fn new(shape: &[u64], max: &[u64], chunk: &[u64], element: u64) -> Option<Grid> {
        let cut = |shape: &[u64]| -> Vec<u64> {
            let pairs = shape.iter().zip(chunk);
            pairs.map(|(length, chunk)| length.div_ceil(*chunk)).collect()
        };
        let lengths = cut(shape);
        let unlimited = max.iter().position(|&length| length == u64::MAX);
        let unlimited = unlimited.unwrap_or(0);
        let mut max_lengths = cut(max);
        if let Some(first) = max_lengths.get_mut(..=unlimited) {
            first.rotate_right(1);
        }
        Some(Grid {
            chunk: chunk.to_vec(),
            chunk_bytes: checked_product(1, chunk)?.checked_mul(element)?,
            count: checked_product(1, &lengths)?,
            shape: shape.to_vec(),
            element,
            lengths,
            max_lengths,
            unlimited,
            parent: None,
        })
    }

    /// Returns the grid of the other axes at an index of the first one, and the indexes of its chunks in this one. Chunks
    /// have all of their bytes, of which those of the part begin at [`start_in_chunk`](Self::start_in_chunk).
    pub(crate) fn index_first_axis(&self, index: u64) -> (Grid, Range<u64>) {
        let lengths = self.lengths[1..].to_vec();
        // A part of the number of all chunks, which was checked.
        let count = lengths.iter().product::<u64>();
        let (row, within) = (index / self.chunk[0], index % self.chunk[0]);
        let first_chunk = row * count;
        let parent = Parent {
            grid: self.clone(),
            first_chunk,
            offset: within * (self.chunk_bytes / self.chunk[0]),
            is_edge: (row + 1) * self.chunk[0] > self.shape[0],
        };
        let grid = Grid {
            chunk: self.chunk[1..].to_vec(),
            chunk_bytes: self.chunk_bytes,
            count,
            shape: self.shape[1..].to_vec(),
            element: self.element,
            max_lengths: lengths.clone(),
            lengths,
            unlimited: 0,
            parent: Some(Arc::new(parent)),
        };
        (grid, first_chunk..first_chunk + count)
    }

    /// Returns where in a chunk its elements begin, in bytes.
    pub(crate) fn start_in_chunk(&self) -> u64 {
        self.parent.as_ref().map_or(0, |parent| parent.offset)
    }

    /// Whether all its chunks reach beyond the edge of the first axis of the grid that it is part of.
    pub(crate) fn is_at_edge(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| parent.is_edge)
    }

    /// Returns how many bytes of a chunk there are up to the last element that is in the shape. The others are never
    /// read, and some writers do not store them.
    pub(crate) fn used_bytes(&self, mut index: u64) -> u64 {
        if let Some(parent) = &self.parent {
            return parent.grid.used_bytes(parent.first_chunk + index);
        }
        let (mut last, mut step) = (0, 1);
        let axes = self.shape.iter().zip(&self.chunk).zip(&self.lengths);
        for ((length, chunk), chunks) in axes.rev() {
            let begin = index.checked_rem(*chunks).unwrap_or(0).saturating_mul(*chunk);
            let used = (*chunk).min(length.saturating_sub(begin));
            last += used.saturating_sub(1) * step;
            step *= chunk;
            index = index.checked_div(*chunks).unwrap_or(0);
        }
        // No more than `chunk_bytes`, which was checked.
        (last + 1) * self.element
    }

    /// Returns the index of the chunk at a place, or `None` outside of the grid.
    pub(crate) fn index_at(&self, place: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut index = 0_u64;
        for (&length, at) in self.lengths.iter().zip(place) {
            if at >= length {
                return None;
            }
            index = index * length + at;
        }
        Some(index)
    }

    /// Returns the index of the chunk of a number, or `None` outside of the grid.
    pub(crate) fn index_of(&self, mut number: u64) -> Option<u64> {
        let mut place = vec![0; self.max_lengths.len()];
        for (at, &length) in place.iter_mut().zip(&self.max_lengths).skip(1).rev() {
            *at = number.checked_rem(length)?;
            number /= length;
        }
        *place.first_mut()? = number;
        place.get_mut(..=self.unlimited)?.rotate_left(1);
        self.index_at(place)
    }

    /// Returns the number of the chunk of an index, or `None` outside of the grid.
    pub(crate) fn number_of(&self, mut index: u64) -> Option<u64> {
        let mut place = vec![0; self.lengths.len()];
        for (at, &length) in place.iter_mut().zip(&self.lengths).rev() {
            *at = index.checked_rem(length)?;
            index /= length;
        }
        place.get_mut(..=self.unlimited)?.rotate_right(1);
        let mut number = 0_u64;
        for (&at, &length) in place.iter().zip(&self.max_lengths) {
            number = number.checked_mul(length)?.checked_add(at)?;
        }
        (index == 0).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_by_the_shape_as_large_as_it_may_become() {
        let grid = Grid::new(&[4, 6], &[8, 10], &[2, 2], 4).unwrap();
        assert_eq!((grid.count, grid.chunk_bytes), (6, 16));
        // The second row of chunks begins behind five that there may be in the first.
        assert_eq!(grid.number_of(3), Some(5));
        assert_eq!(grid.index_of(5), Some(3));
        assert_eq!(grid.index_of(3), None);
        assert_eq!(grid.number_of(6), None);
    }

    #[test]
    fn the_axis_without_a_limit_counts_first() {
        let grid = Grid::new(&[2, 3], &[2, u64::MAX], &[1, 1], 1).unwrap();
        let numbers: Vec<_> = (0..6).map(|index| grid.number_of(index).unwrap()).collect();
        assert_eq!(numbers, [0, 2, 4, 1, 3, 5]);
        assert!((0..6).all(|index| grid.index_of(numbers[index as usize]) == Some(index)));
    }

    #[test]
    fn used_bytes_end_with_the_last_element_inside() {
        let grid = Grid::new(&[3, 5], &[3, 5], &[2, 4], 2).unwrap();
        let used: Vec<_> = (0..4).map(|index| grid.used_bytes(index)).collect();
        assert_eq!(used, [16, 10, 8, 2]);
    }

    #[test]
    fn a_place_of_the_first_axis_is_a_grid_of_the_others() {
        let whole = Grid::new(&[3, 5], &[3, 5], &[2, 4], 2).unwrap();
        let (grid, chunks) = whole.index_first_axis(1);
        assert_eq!((chunks, grid.start_in_chunk(), grid.is_at_edge()), (0..2, 8, false));
        assert_eq!((grid.count, grid.used_bytes(0), grid.used_bytes(1)), (2, 16, 10));
        let (grid, chunks) = whole.index_first_axis(2);
        assert_eq!((chunks, grid.start_in_chunk(), grid.is_at_edge()), (2..4, 0, true));
        assert_eq!((grid.used_bytes(0), grid.used_bytes(1)), (8, 2));
    }

    #[test]
    fn too_many_chunks_are_no_grid() {
        let max_lengths = [u64::MAX - 1, u64::MAX - 1];
        assert_eq!(Grid::new(&max_lengths, &max_lengths, &[1, 1], 1), None);
    }
}
