//! Rows that are in memory together: a pool of the order, block by block.

use std::ops::Range;
use std::sync::OnceLock;

use vramfit_core::Result;

use super::columns::Columns;
use super::copy::{Place, copy_rows};
use crate::order::{Epoch, Pool};

/// How an epoch is divided into rooms.
#[derive(Debug)]
pub(super) struct Rooms {
    epoch: Epoch,
    /// For an epoch in the order of the file, which has no pools of its own: the positions of a room, and
    /// of a block in it.
    sequential: Option<(u64, u64)>,
}

impl Rooms {
    /// Returns the rooms of an epoch that is made of pools.
    pub(super) fn of_pools(epoch: Epoch) -> Rooms {
        Rooms {
            epoch,
            sequential: None,
        }
    }

    /// Returns rooms of so many positions each, made of blocks, for an epoch in the order of the file.
    pub(super) fn in_order(epoch: Epoch, blocks: u64, block_rows: u64) -> Rooms {
        Rooms {
            epoch,
            sequential: Some((blocks * block_rows, block_rows)),
        }
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
                tasks: (0..blocks as usize).collect(),
                held: (0..blocks).map(|_| OnceLock::new()).collect(),
                positions,
                layout: Layout::InOrder { block_rows },
            };
        }
        let Some(pool) = self.epoch.pool(index) else {
            return Room::empty();
        };
        let blocks = pool.blocks().iter().enumerate();
        Room {
            positions: pool.positions(),
            tasks: blocks
                .filter(|(_, block)| block.wanted > 0)
                .map(|(place, _)| place)
                .collect(),
            held: pool.blocks().iter().map(|_| OnceLock::new()).collect(),
            layout: Layout::Pool(Box::new(pool)),
        }
    }

    /// Appends the rows at positions of the epoch.
    pub(super) fn append_rows(&self, positions: Range<u64>, rows: &mut Vec<u64>) {
        self.epoch.append_rows(positions, rows);
    }
}

/// Memory of one block: the rows of each column.
pub(super) type Block = Vec<Vec<u8>>;

/// Rows in memory together.
#[derive(Debug)]
pub(super) struct Room {
    positions: Range<u64>,
    layout: Layout,
    /// The blocks that have to be read.
    tasks: Vec<usize>,
    held: Vec<OnceLock<Block>>,
}

#[derive(Debug)]
enum Layout {
    Pool(Box<Pool>),
    InOrder { block_rows: u64 },
}

impl Room {
    fn empty() -> Room {
        Room {
            positions: 0..0,
            layout: Layout::InOrder { block_rows: 1 },
            tasks: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Returns the positions of the epoch that it has.
    pub(super) fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Returns how many blocks are to be read.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Reads one of its blocks.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn load(
        &self,
        task: usize,
        rooms: &Rooms,
        columns: &Columns,
        mut block: Block,
    ) -> Result<()> {
        let place = self.tasks[task];
        block.resize_with(columns.columns.len(), Vec::new);
        match &self.layout {
            Layout::Pool(pool) => {
                let rows = pool.blocks()[place].rows.clone();
                for (column, bytes) in columns.columns.iter().zip(&mut block) {
                    let length = (rows.end - rows.start) as usize * column.rows().row_bytes();
                    resize(bytes, length);
                    column.rows().read(rows.clone(), bytes)?;
                }
            }
            Layout::InOrder { block_rows } => {
                let start = self.positions.start + place as u64 * block_rows;
                let end = (start + block_rows).min(self.positions.end);
                let mut rows = Vec::new();
                rooms.append_rows(start..end, &mut rows);
                for (column, bytes) in columns.columns.iter().zip(&mut block) {
                    resize(bytes, rows.len() * column.rows().row_bytes());
                    read_or_gather(column.rows(), &rows, bytes)?;
                }
            }
        }
        // Each task is given out once.
        let _ = self.held[place].set(block);
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
                // None without a row that is wanted.
                .map(|block| block.get().map_or(&[][..], |block| &block[number]))
                .collect();
            copy_rows(&blocks, &places, column.rows().row_bytes(), out);
        }
    }

    /// Gives back the memory of all blocks, to be used again.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = Block> {
        self.held.into_iter().filter_map(OnceLock::into_inner)
    }

    /// Returns the blocks that positions are in, and the rows of them.
    fn places(&self, positions: &[u64]) -> Vec<Place> {
        match &self.layout {
            Layout::Pool(pool) => {
                let mut places = Vec::with_capacity(positions.len());
                pool.append(positions, &mut places);
                let starts: Vec<u64> = pool.blocks().iter().map(|it| it.rows.start).collect();
                places
                    .iter_mut()
                    .for_each(|(block, row)| *row -= starts[*block]);
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
    match (rows.first(), rows.last()) {
        (Some(&first), Some(&last))
            if rows.is_sorted() && last - first + 1 == rows.len() as u64 =>
        {
            reader.read(first..last + 1, out)
        }
        _ => reader.gather(rows, out),
    }
}

/// Makes memory exactly so long; it keeps what it has where it was longer.
fn resize(bytes: &mut Vec<u8>, length: usize) {
    bytes.reserve_exact(length.saturating_sub(bytes.len()));
    bytes.resize(length, 0);
}
