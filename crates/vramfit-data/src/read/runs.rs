//! Where the elements of a chunk belong in the rows of its dataset.

use crate::hdf5::Grid;

/// A chunk's share of a row is made of runs of elements that are side by side in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// In the chunk's part of the row.
    pub(super) from: usize,
    /// In the row.
    pub(super) to: usize,
    pub(super) length: usize,
}

/// Returns where in a row the chunk at a place of its band begins, along each further axis.
pub(super) fn run_start(grid: &Grid, mut place: u64) -> Vec<u64> {
    let mut origin = vec![0; grid.lengths.len() - 1];
    let axes = grid.lengths[1..].iter().zip(&grid.chunk[1..]);
    for (begin, (length, chunk)) in origin.iter_mut().zip(axes).rev() {
        *begin = place % length * chunk;
        place /= length;
    }
    origin
}

/// Finds the runs of a chunk's share of a row, given shape, chunk and origin along the further axes.
pub(super) fn find_runs(shape: &[u64], chunk: &[u64], origin: &[u64], runs: &mut Vec<Run>) {
    // Axes that the chunk covers from end to end join with the one before them.
    let mut length = 1_u64;
    let mut axes = shape.len();
    while axes > 0 {
        axes -= 1;
        let extent = chunk[axes].min(shape[axes] - origin[axes]);
        length *= extent;
        if extent != shape[axes] || chunk[axes] != shape[axes] {
            break;
        }
    }
    let split = axes;
    let (mut from_unit, mut to_unit) = (1, 1);
    for axis in split..shape.len() {
        from_unit *= chunk[axis];
        to_unit *= shape[axis];
    }
    let first_to = match shape.get(split) {
        Some(&extent) => origin[split] * (to_unit / extent.max(1)),
        None => 0,
    };
    runs.push(Run { from: 0, to: first_to as usize, length: length as usize });
    for axis in (0..split).rev() {
        let extent = chunk[axis].min(shape[axis] - origin[axis]);
        let count = runs.len();
        for run in runs.iter_mut() {
            run.to += (origin[axis] * to_unit) as usize;
        }
        for step in 1..extent {
            for place in 0..count {
                let mut run = runs[place];
                run.from += (step * from_unit) as usize;
                run.to += (step * to_unit) as usize;
                runs.push(run);
            }
        }
        from_unit *= chunk[axis];
        to_unit *= shape[axis];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(shape: &[u64], chunk: &[u64], origin: &[u64]) -> Vec<(usize, usize, usize)> {
        let mut runs = Vec::new();
        find_runs(shape, chunk, origin, &mut runs);
        runs.into_iter().map(|run| (run.from, run.to, run.length)).collect()
    }

    #[test]
    fn axes_that_are_covered_join() {
        assert_eq!(runs(&[], &[], &[]), [(0, 0, 1)]);
        assert_eq!(runs(&[3, 4], &[3, 4], &[0, 0]), [(0, 0, 12)]);
        assert_eq!(runs(&[6, 4], &[2, 4], &[2, 0]), [(0, 8, 8)]);
    }

    #[test]
    fn the_edge_cuts_runs_short() {
        assert_eq!(runs(&[2, 5], &[2, 3], &[0, 3]), [(0, 3, 2), (3, 8, 2)]);
        assert_eq!(runs(&[3, 4], &[2, 4], &[2, 0]), [(0, 8, 4)]);
    }

    #[test]
    fn a_chunk_longer_than_the_shape_does_not_join() {
        assert_eq!(runs(&[2, 4], &[2, 6], &[0, 0]), [(0, 0, 4), (6, 4, 4)]);
    }
}
