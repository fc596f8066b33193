//! The rows of a window of the order in memory, block by block.

use std::ops::Range;
use std::sync::OnceLock;

use vramfit_base::Result;

use super::columns::Columns;
use super::copy::{CACHE_LINE, RowLocation, copy_rows};
use super::slab::Slab;
use crate::order::{Epoch, Window, WindowSize};
use crate::read::RowReader;

/// Blocks that one task reads have at most this many bytes together: the overhead of a task, such as checking that the
/// file is unchanged, is small in comparison.
const TASK_BYTES: u64 = 512 << 10;

/// But a window is read by so many tasks, if it has as many blocks, so that there is one for every thread.
const MIN_TASKS: u64 = 32;

/// How an epoch is divided into windows.
#[derive(Debug)]
pub(super) struct WindowPlan {
    epoch: Epoch,
    /// Blocks that one task reads.
    task_blocks: usize,
    task_rows: u64,
    /// Tasks that read a whole window.
    max_tasks: u64,
    sequential: Option<SequentialWindows>,
}

/// The windows of an epoch in file order, which has none of its own: this many blocks of this many rows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequentialWindows {
    /// Blocks of a window.
    pub blocks: u64,
    /// Rows of a block.
    pub block_rows: u64,
}

impl SequentialWindows {
    pub(super) fn rows(&self) -> u64 {
        self.blocks * self.block_rows
    }
}

impl WindowPlan {
    pub(super) fn shuffled(epoch: Epoch, size: WindowSize, row_bytes: u64) -> WindowPlan {
        let block_bytes = size.block_rows.saturating_mul(row_bytes).max(1);
        let task_blocks = (TASK_BYTES / block_bytes).min(size.window_blocks / MIN_TASKS).max(1);
        WindowPlan {
            epoch,
            max_tasks: size.window_blocks.div_ceil(task_blocks),
            task_blocks: task_blocks as usize,
            task_rows: task_blocks.saturating_mul(size.block_rows),
            sequential: None,
        }
    }

    /// Plans the windows of an epoch in file order.
    pub(super) fn sequential(epoch: Epoch, windows: SequentialWindows) -> WindowPlan {
        WindowPlan {
            epoch,
            task_blocks: 1,
            task_rows: windows.block_rows,
            max_tasks: windows.blocks,
            sequential: Some(windows),
        }
    }

    /// Returns how many bytes one task reads.
    pub(super) fn task_bytes(&self, row_bytes: u64) -> u64 {
        self.task_rows.saturating_mul(row_bytes)
    }

    fn count(&self) -> u64 {
        match self.sequential {
            Some(windows) => self.epoch.len().div_ceil(windows.rows()),
            None => self.epoch.window_count().unwrap_or(0) as u64,
        }
    }

    /// Allocates the memory of as many windows as are open at a time.
    ///
    /// # Errors
    /// `io` when the system has not enough memory.
    pub(super) fn allocate_windows(&self, open: u64, columns: &Columns) -> Result<Vec<Slab>> {
        let tasks = self.max_tasks.saturating_mul(open.min(self.count()));
        self.allocate_tasks(tasks as usize, columns)
    }

    fn allocate_tasks(&self, count: usize, columns: &Columns) -> Result<Vec<Slab>> {
        let rows = self.task_rows.min(columns.len());
        let bytes = columns.columns.iter().map(|column| {
            let bytes = rows.saturating_mul(column.rows().row_bytes() as u64);
            (bytes as usize).saturating_add(CACHE_LINE)
        });
        Slab::allocate_many(count, bytes.fold(0, usize::saturating_add))
    }

    /// Returns which window a position of the epoch is in.
    pub(super) fn window_at(&self, position: u64) -> usize {
        match self.sequential {
            Some(windows) => (position / windows.rows()) as usize,
            None => self.epoch.window_at(position).unwrap_or(0),
        }
    }

    /// Opens a window; nothing is loaded yet.
    pub(super) fn open(&self, index: usize) -> WindowBuffer {
        if let Some(windows) = self.sequential {
            let start = index as u64 * windows.rows();
            let positions = start..(start + windows.rows()).min(self.epoch.len());
            let block_rows = windows.block_rows;
            let blocks = (positions.end - start).div_ceil(block_rows);
            return WindowBuffer {
                loaded: (0..blocks).map(|_| OnceLock::new()).collect(),
                positions,
                layout: Layout::Sequential { block_rows },
            };
        }
        match self.epoch.window(index) {
            Some(window) => WindowBuffer::shuffled(window, self.task_blocks),
            None => WindowBuffer::empty(),
        }
    }
}

/// What one task has loaded: for each column the rows of one block after another.
#[derive(Debug)]
struct LoadedBlocks {
    memory: Slab,
    /// Where each column is in it.
    columns: Vec<Range<usize>>,
}

impl LoadedBlocks {
    fn new(memory: Slab, rows: u64, columns: &Columns) -> LoadedBlocks {
        let mut start = 0;
        let columns = columns.columns.iter().map(|column| {
            let range = start..start + rows as usize * column.rows().row_bytes();
            start = range.end.next_multiple_of(CACHE_LINE);
            range
        });
        LoadedBlocks { columns: columns.collect(), memory }
    }

    fn column(&self, number: usize) -> &[u8] {
        &self.memory.bytes()[self.columns[number].clone()]
    }

    fn column_mut(&mut self, number: usize) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.columns[number].clone()]
    }
}

/// The rows of a window in memory.
#[derive(Debug)]
pub(super) struct WindowBuffer {
    positions: Range<u64>,
    layout: Layout,
    /// What each task has loaded.
    loaded: Vec<OnceLock<LoadedBlocks>>,
}

#[derive(Debug)]
enum Layout {
    Shuffled {
        window: Box<Window>,
        /// The blocks that each task reads.
        tasks: Vec<Vec<usize>>,
        /// Where the rows of each block are once they were loaded.
        locations: Vec<BlockLocation>,
    },
    Sequential {
        block_rows: u64,
    },
}

/// Where the rows of a block are.
#[derive(Clone, Copy, Debug, Default)]
struct BlockLocation {
    task: usize,
    /// Added to the number of a row in the file it is the row's number in the memory of the task; negative offsets
    /// wrap.
    offset: u64,
}

impl WindowBuffer {
    fn empty() -> WindowBuffer {
        WindowBuffer {
            positions: 0..0,
            layout: Layout::Sequential { block_rows: 1 },
            loaded: Vec::new(),
        }
    }

    fn shuffled(window: Window, task_blocks: usize) -> WindowBuffer {
        let mut locations = vec![BlockLocation::default(); window.blocks().len()];
        let needed: Vec<usize> =
            (0..locations.len()).filter(|block| window.blocks()[*block].wanted > 0).collect();
        let tasks: Vec<Vec<usize>> = needed.chunks(task_blocks).map(<[_]>::to_vec).collect();
        for (task, blocks) in tasks.iter().enumerate() {
            let mut rows_before = 0_u64;
            for block in blocks {
                let rows = &window.blocks()[*block].rows;
                locations[*block] =
                    BlockLocation { task, offset: rows_before.wrapping_sub(rows.start) };
                rows_before += rows.end - rows.start;
            }
        }
        WindowBuffer {
            positions: window.positions(),
            loaded: tasks.iter().map(|_| OnceLock::new()).collect(),
            layout: Layout::Shuffled { window: Box::new(window), tasks, locations },
        }
    }

    /// Returns the positions of the epoch that it holds.
    pub(super) fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Returns how many tasks load it.
    pub(super) fn task_count(&self) -> usize {
        self.loaded.len()
    }

    /// Runs one of these tasks, in recycled or new memory.
    ///
    /// # Errors
    /// All that reading can fail with; `io` when the system has not enough memory.
    pub(super) fn load(
        &self,
        task: usize,
        plan: &WindowPlan,
        columns: &Columns,
        slab: Option<Slab>,
    ) -> Result<()> {
        let slab = match slab {
            Some(slab) => slab,
            None => plan.allocate_tasks(1, columns)?.remove(0),
        };
        let loaded = match &self.layout {
            Layout::Shuffled { window, tasks, .. } => {
                load_blocks(window, &tasks[task], columns, slab)?
            }
            Layout::Sequential { block_rows } => {
                let start = self.positions.start + task as u64 * block_rows;
                let end = (start + block_rows).min(self.positions.end);
                let mut rows = Vec::new();
                plan.epoch.append_rows(start..end, &mut rows);
                let mut loaded = LoadedBlocks::new(slab, end - start, columns);
                for (number, column) in columns.columns.iter().enumerate() {
                    read_rows(column.rows(), &rows, loaded.column_mut(number))?;
                }
                loaded
            }
        };
        // Each task is given out once.
        let _ = self.loaded[task].set(loaded);
        Ok(())
    }

    /// Copies the rows at `positions`, all of which are in this window, into the columns of a batch.
    pub(super) fn copy<'o>(
        &self,
        positions: &[u64],
        columns: &Columns,
        out: impl Iterator<Item = &'o mut [u8]>,
    ) {
        let locations = self.row_locations(positions);
        for (number, (column, out)) in columns.columns.iter().zip(out).enumerate() {
            let blocks: Vec<&[u8]> = (self.loaded.iter())
                // Batches are filled once all tasks have run.
                .map(|loaded| loaded.get().map_or(&[][..], |loaded| loaded.column(number)))
                .collect();
            copy_rows(&blocks, &locations, column.rows().row_bytes(), out);
        }
    }

    /// Returns its memory, to be recycled.
    pub(super) fn into_slabs(self) -> impl Iterator<Item = Slab> {
        (self.loaded.into_iter()).filter_map(OnceLock::into_inner).map(|loaded| loaded.memory)
    }

    /// Returns the task that has loaded the row at each position, and the row's number in its memory.
    fn row_locations(&self, positions: &[u64]) -> Vec<RowLocation> {
        match &self.layout {
            Layout::Shuffled { window, locations, .. } => {
                let mut rows = Vec::with_capacity(positions.len());
                window.for_each(positions, |block, row| {
                    let location = locations[block];
                    rows.push((location.task, row.wrapping_add(location.offset)));
                });
                rows
            }
            Layout::Sequential { block_rows } => (positions.iter())
                .map(|position| position - self.positions.start)
                .map(|offset| ((offset / block_rows) as usize, offset % block_rows))
                .collect(),
        }
    }
}

/// Loads blocks of a shuffled window.
fn load_blocks(
    window: &Window,
    blocks: &[usize],
    columns: &Columns,
    slab: Slab,
) -> Result<LoadedBlocks> {
    let rows = |block: &usize| window.blocks()[*block].rows.clone();
    let length = |block: &usize| rows(block).end - rows(block).start;
    let mut loaded = LoadedBlocks::new(slab, blocks.iter().map(length).sum(), columns);
    for (number, column) in columns.columns.iter().enumerate() {
        let row_bytes = column.rows().row_bytes();
        let mut rest = loaded.column_mut(number);
        for block in blocks {
            let (out, after) = rest.split_at_mut(length(block) as usize * row_bytes);
            column.rows().read(rows(block), out)?;
            rest = after;
        }
    }
    Ok(loaded)
}

/// Reads rows that are mostly consecutive.
pub(super) fn read_rows(reader: &RowReader, rows: &[u64], out: &mut [u8]) -> Result<()> {
    match rows.first() {
        Some(&first) if are_consecutive(rows) => reader.read(first..first + rows.len() as u64, out),
        _ => reader.gather(rows, out),
    }
}

/// Whether each row follows the one before it. A row that is repeated to fill a batch does not: `[7, 9, 9]` is
/// sorted and as long as the range from 7 to 9.
fn are_consecutive(rows: &[u64]) -> bool {
    rows.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

#[cfg(test)]
mod tests {
    use super::are_consecutive;

    #[test]
    fn repeated_rows_are_no_range() {
        assert!(are_consecutive(&[7, 8, 9]));
        assert!(are_consecutive(&[7]));
        assert!(!are_consecutive(&[7, 9, 9]));
        assert!(!are_consecutive(&[7, 7, 9]));
        assert!(!are_consecutive(&[9, 8, 7]));
    }
}
