//! Rows that are in memory together: a pool of the order, block by block.

use std::ops::Range;
use std::sync::OnceLock;

use vramfit_core::Result;

use super::columns::Columns;
use super::copy::{LINE, Place, copy_rows};
use super::slab::Slab;
use crate::order::{Epoch, Pool, Pools};

/// Blocks of a pool that are read by one piece of work have at most so many bytes together: what is not
/// reading, such as looking whether the file is still the same, is then little beside it.
const TASK_BYTES: u64 = 512 << 10;

/// But a pool is read in so many pieces of work, if it has as many blocks, so that there is one for every thread.
const MIN_TASKS: u64 = 32;

/// How an epoch is divided into rooms.
#[derive(Debug)]
pub(super) struct Rooms {
    epoch: Epoch,
    /// Blocks of a pool that one piece of work reads.
    task_blocks: usize,
    task_rows: u64,
    /// Pieces of work that read a whole room.
    most_tasks: u64,
    /// For an epoch in the order of the file, which has no pools of its own: the positions of a room, and
    /// of a block in it.
    sequential: Option<(u64, u64)>,
}

impl Rooms {
    /// Returns the rooms of an epoch that is made of pools, with so many bytes to a row.
    pub(super) fn of_pools(epoch: Epoch, pools: Pools, row_bytes: u64) -> Rooms {
        let block_bytes = pools.block_rows.saturating_mul(row_bytes).max(1);
        let task_blocks = (TASK_BYTES / block_bytes).min(pools.pool_blocks / MIN_TASKS);
        let task_blocks = task_blocks.max(1);
        Rooms {
            epoch,
            most_tasks: pools.pool_blocks.div_ceil(task_blocks),
            task_blocks: task_blocks as usize,
            task_rows: task_blocks.saturating_mul(pools.block_rows),
            sequential: None,
        }
    }

    /// Returns rooms of so many positions each, made of blocks, for an epoch in the order of the file.
    pub(super) fn in_order(epoch: Epoch, blocks: u64, block_rows: u64) -> Rooms {
        Rooms {
            epoch,
            task_blocks: 1,
            task_rows: block_rows,
            most_tasks: blocks,
            sequential: Some((blocks * block_rows, block_rows)),
        }
    }

    /// Returns how many bytes one piece of work reads, with so many bytes to a row.
    pub(super) fn task_bytes(&self, row_bytes: u64) -> u64 {
        self.task_rows.saturating_mul(row_bytes)
    }

    /// Returns how many rooms there are.
    fn count(&self) -> u64 {
        match self.sequential {
            Some((size, _)) => self.epoch.len().div_ceil(size),
            None => self.epoch.pools().unwrap_or(0) as u64,
        }
    }

    /// Makes memory for as many rooms as are open at a time.
    ///
    /// # Errors
    /// `io` when the system gives none.
    pub(super) fn memory(&self, open: u64, columns: &Columns) -> Result<Vec<Slab>> {
        let pieces = self.most_tasks.saturating_mul(open.min(self.count()));
        self.pieces(pieces as usize, columns)
    }

    /// Makes memory for so many pieces of work.
    fn pieces(&self, count: usize, columns: &Columns) -> Result<Vec<Slab>> {
        let rows = self.task_rows.min(columns.len());
        let each = columns.columns.iter().map(|column| {
            let bytes = rows.saturating_mul(column.rows().row_bytes() as u64);
            (bytes as usize).saturating_add(LINE)
        });
        Slab::several(count, each.fold(0, usize::saturating_add))
    }

    /// Returns which room a position of the epoch is in.
    pub(super) fn at(&self, position: u64) -> usize {
        match self.sequential {
            Some((size, _)) => (position / size) as usize,
            None => self.epoch.pool_at(position).unwrap_or(0),
        }
    }

    /// Lays out a room; nothing is read yet.
    pub(super) fn open(&self, index: usize) -> Room {
        if let Some((size, block_rows)) = self.sequential {
            let start = index as u64 * size;
            let positions = start..(start + size).min(self.epoch.len());
            let blocks = (positions.end - start).div_ceil(block_rows);
            return Room {
                held: (0..blocks).map(|_| OnceLock::new()).collect(),
                positions,
                layout: Layout::InOrder { block_rows },
            };
        }
        match self.epoch.pool(index) {
            Some(pool) => Room::of_pool(pool, self.task_blocks),
            None => Room::empty(),
        }
    }

    /// Appends the rows at positions of the epoch.
    pub(super) fn append_rows(&self, positions: Range<u64>, rows: &mut Vec<u64>) {
        self.epoch.append_rows(positions, rows);
    }
}

/// What one piece of work has read: the rows of each column, of one block behind another.
#[derive(Debug)]
struct Held {
    memory: Slab,
    /// Where each column is in it.
    columns: Vec<Range<usize>>,
}

impl Held {
    /// Gives memory to so many rows of each column.
    fn new(memory: Slab, rows: u64, columns: &Columns) -> Held {
        let mut start = 0;
        let columns = columns.columns.iter().map(|column| {
            let here = start..start + rows as usize * column.rows().row_bytes();
            start = here.end.next_multiple_of(LINE);
            here
        });
        let columns = columns.collect();
        Held { memory, columns }
    }

    fn column(&self, number: usize) -> &[u8] {
        &self.memory.bytes()[self.columns[number].clone()]
    }

    fn column_mut(&mut self, number: usize) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.columns[number].clone()]
    }
}

/// Rows in memory together.
#[derive(Debug)]
pub(super) struct Room {
    positions: Range<u64>,
    layout: Layout,
    /// What each piece of work has read.
    held: Vec<OnceLock<Held>>,
}

#[derive(Debug)]
enum Layout {
    Pool {
        pool: Box<Pool>,
        /// The blocks that have to be read, by piece of work.
        tasks: Vec<Vec<usize>>,
        /// Where the rows of each block are once they were read.
        spots: Vec<Spot>,
    },
    InOrder {
        block_rows: u64,
    },
}

/// Where the rows of a block are.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    task: usize,
    /// What has to be added to the number of a row in the file, to have it in the memory of the piece of work;
    /// where that is less than nothing it wraps.
    added: u64,
}

impl Room {
    fn empty() -> Room {
        Room {
            positions: 0..0,
            layout: Layout::InOrder { block_rows: 1 },
            held: Vec::new(),
        }
    }

    fn of_pool(pool: Pool, task_blocks: usize) -> Room {
        let mut spots = vec![Spot::default(); pool.blocks().len()];
        let wanted: Vec<usize> = (0..spots.len())
            .filter(|place| pool.blocks()[*place].wanted > 0)
            .collect();
        let tasks: Vec<Vec<usize>> = wanted.chunks(task_blocks).map(<[_]>::to_vec).collect();
        for (task, places) in tasks.iter().enumerate() {
            let mut before = 0_u64;
            for place in places {
                let rows = &pool.blocks()[*place].rows;
                spots[*place] = Spot {
                    task,
                    added: before.wrapping_sub(rows.start),
                };
                before += rows.end - rows.start;
            }
        }
        Room {
            positions: pool.positions(),
            held: tasks.iter().map(|_| OnceLock::new()).collect(),
            layout: Layout::Pool {
                pool: Box::new(pool),
                tasks,
                spots,
            },
        }
    }

    /// Returns the positions of the epoch that it has.
    pub(super) fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Returns how many pieces of work it takes to read it.
    pub(super) fn tasks(&self) -> usize {
        self.held.len()
    }

    /// Does one of them, in memory that was used before, or new.
    ///
    /// # Errors
    /// All that reading can fail with; `io` when the system gives no memory.
    pub(super) fn load(
        &self,
        task: usize,
        rooms: &Rooms,
        columns: &Columns,
        memory: Option<Slab>,
    ) -> Result<()> {
        let memory = match memory {
            Some(memory) => memory,
            None => rooms.pieces(1, columns)?.remove(0),
        };
        let held = match &self.layout {
            Layout::Pool { pool, tasks, .. } => {
                let rows = |place: &usize| pool.blocks()[*place].rows.clone();
                let all: u64 = tasks[task].iter().map(|place| length(&rows(place))).sum();
                let mut held = Held::new(memory, all, columns);
                for (number, column) in columns.columns.iter().enumerate() {
                    let row_bytes = column.rows().row_bytes();
                    let mut rest = held.column_mut(number);
                    for place in &tasks[task] {
                        let here = length(&rows(place)) as usize * row_bytes;
                        let (here, behind) = rest.split_at_mut(here);
                        column.rows().read(rows(place), here)?;
                        rest = behind;
                    }
                }
                held
            }
            Layout::InOrder { block_rows } => {
                let start = self.positions.start + task as u64 * block_rows;
                let end = (start + block_rows).min(self.positions.end);
                let mut rows = Vec::new();
                rooms.append_rows(start..end, &mut rows);
                let mut held = Held::new(memory, end - start, columns);
                for (number, column) in columns.columns.iter().enumerate() {
                    read_or_gather(column.rows(), &rows, held.column_mut(number))?;
                }
                held
            }
        };
        // Each task is given out once.
        let _ = self.held[task].set(held);
        Ok(())
    }

    /// Copies the rows at `positions`, all of which are in this room, into the columns of a batch.
    pub(super) fn copy<'o>(
        &self,
        positions: &[u64],
        columns: &Columns,
        out: impl Iterator<Item = &'o mut [u8]>,
    ) {
        let places = self.places(positions);
        for (number, (column, out)) in columns.columns.iter().zip(out).enumerate() {
            let blocks: Vec<&[u8]> = (self.held.iter())
                // It is copied from when all of it was read.
                .map(|held| held.get().map_or(&[][..], |held| held.column(number)))
                .collect();
            copy_rows(&blocks, &places, column.rows().row_bytes(), out);
        }
    }

    /// Gives back its memory, to be used again.
    pub(super) fn into_memory(self) -> impl Iterator<Item = Slab> {
        let held = self.held.into_iter().filter_map(OnceLock::into_inner);
        held.map(|held| held.memory)
    }

    /// Returns the pieces of work that have read the rows at positions, and where in their memory the rows are.
    fn places(&self, positions: &[u64]) -> Vec<Place> {
        match &self.layout {
            Layout::Pool { pool, spots, .. } => {
                let mut places = Vec::with_capacity(positions.len());
                pool.for_each(positions, |block, row| {
                    let spot = spots[block];
                    places.push((spot.task, row.wrapping_add(spot.added)));
                });
                places
            }
            Layout::InOrder { block_rows } => {
                let within = positions.iter().map(|at| at - self.positions.start);
                within
                    .map(|at| ((at / block_rows) as usize, at % block_rows))
                    .collect()
            }
        }
    }
}

/// Reads rows that are mostly neighbours.
pub(super) fn read_or_gather(
    reader: &crate::read::Rows,
    rows: &[u64],
    out: &mut [u8],
) -> Result<()> {
    match rows.first() {
        Some(&first) if are_neighbours(rows) => reader.read(first..first + rows.len() as u64, out),
        _ => reader.gather(rows, out),
    }
}

/// Whether each row is the one behind that before it. A row that is repeated to fill a batch is not: `[7, 9, 9]` is
/// sorted and as long as the range from 7 to 9.
fn are_neighbours(rows: &[u64]) -> bool {
    rows.windows(2)
        .all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

fn length(rows: &Range<u64>) -> u64 {
    rows.end - rows.start
}

#[cfg(test)]
mod tests {
    use super::are_neighbours;

    #[test]
    fn repeated_rows_are_no_range() {
        assert!(are_neighbours(&[7, 8, 9]));
        assert!(are_neighbours(&[7]));
        assert!(!are_neighbours(&[7, 9, 9]));
        assert!(!are_neighbours(&[7, 7, 9]));
        assert!(!are_neighbours(&[9, 8, 7]));
    }
}
