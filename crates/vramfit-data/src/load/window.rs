//! The rows of a window of the order in memory, block by block.

use std::ops::Range;
use std::sync::OnceLock;

use vramfit_base::Result;

use super::columns::Columns;
use super::copy::{CACHE_LINE, RowLocation, copy_rows};
use super::loaded_blocks::{BlockSamples, LoadedBlocks};
use super::sample_copy::{fill_derived, fill_samples};
use super::segments::TouchedFiles;
use super::slab::Slab;
use crate::order::{Epoch, Window, WindowSize};

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
    /// Bytes of the rows of a block at most.
    block_bytes: u64,
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
    /// Plans the windows of a shuffled epoch; the rows of no block have more than `block_bytes`.
    pub(super) fn shuffled(epoch: Epoch, size: WindowSize, block_bytes: u64) -> WindowPlan {
        let task_blocks =
            (TASK_BYTES / block_bytes.max(1)).min(size.window_blocks / MIN_TASKS).max(1);
        WindowPlan {
            epoch,
            block_bytes,
            max_tasks: size.window_blocks.div_ceil(task_blocks),
            task_blocks: task_blocks as usize,
            task_rows: task_blocks.saturating_mul(size.block_rows),
            sequential: None,
        }
    }

    /// Plans the windows of an epoch in file order; the rows of no block have more than `block_bytes`.
    pub(super) fn sequential(
        epoch: Epoch,
        windows: SequentialWindows,
        block_bytes: u64,
    ) -> WindowPlan {
        WindowPlan {
            epoch,
            block_bytes,
            task_blocks: 1,
            task_rows: windows.block_rows,
            max_tasks: windows.blocks,
            sequential: Some(windows),
        }
    }

    /// Returns how many bytes one task reads at most.
    pub(super) fn task_bytes(&self) -> u64 {
        self.block_bytes.saturating_mul(self.task_blocks as u64)
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
        // A window may have fewer samples than a task.
        let task = match columns.samples.is_rows() {
            true => columns.block_bytes(self.task_rows),
            false => self.task_bytes(),
        };
        let ends = columns.columns.len() * CACHE_LINE;
        Slab::allocate_many(count, (task as usize).saturating_add(ends))
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
    /// Which of the blocks of the task it is.
    place: usize,
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
            for (place, block) in blocks.iter().enumerate() {
                let rows = &window.blocks()[*block].rows;
                let offset = rows_before.wrapping_sub(rows.start);
                locations[*block] = BlockLocation { task, place, offset };
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
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        let slab = match slab {
            Some(slab) => slab,
            None => plan.allocate_tasks(1, columns)?.remove(0),
        };
        let loaded = match &self.layout {
            Layout::Shuffled { window, tasks, .. } => {
                let blocks = tasks[task].iter().map(|block| window.blocks()[*block].rows.clone());
                let blocks: Vec<BlockSamples> = blocks.map(BlockSamples::All).collect();
                LoadedBlocks::load(slab, &blocks, columns, touched)?
            }
            Layout::Sequential { block_rows } => {
                let start = self.positions.start + task as u64 * block_rows;
                let end = (start + block_rows).min(self.positions.end);
                let mut samples = Vec::new();
                plan.epoch.append_rows(start..end, &mut samples);
                LoadedBlocks::load(slab, &[BlockSamples::Some(samples)], columns, touched)?
            }
        };
        // Each task is given out once.
        let _ = self.loaded[task].set(loaded);
        Ok(())
    }

    /// Copies the samples at `positions`, all of which are in this window, into the columns of a batch.
    ///
    /// # Errors
    /// None: the rows are in memory.
    pub(super) fn copy<'o>(
        &self,
        positions: &[u64],
        plan: &WindowPlan,
        columns: &Columns,
        out: impl Iterator<Item = &'o mut [u8]>,
    ) -> Result<()> {
        if !columns.samples.is_rows() {
            return self.copy_samples(positions, plan, columns, out);
        }
        let locations = self.row_locations(positions);
        for (number, (column, out)) in columns.columns.iter().zip(out).enumerate() {
            let blocks: Vec<&[u8]> = (self.loaded.iter())
                // Batches are filled once all tasks have run.
                .map(|loaded| loaded.get().map_or(&[][..], |loaded| loaded.column(number)))
                .collect();
            copy_rows(&blocks, &locations, column.row_bytes(), out);
        }
        Ok(())
    }

    fn copy_samples<'o>(
        &self,
        positions: &[u64],
        plan: &WindowPlan,
        columns: &Columns,
        mut out: impl Iterator<Item = &'o mut [u8]>,
    ) -> Result<()> {
        let (samples, locations) = self.sample_locations(positions, plan);
        for (number, (column, out)) in columns.columns.iter().zip(&mut out).enumerate() {
            let row_bytes = column.row_bytes();
            fill_samples(columns, number, &samples, out, |place, rows, out| {
                let (task, block) = locations[place];
                // Batches are filled once all tasks have run.
                if let Some(loaded) = self.loaded[task].get() {
                    let first = loaded.rows[number][block].place(rows.start) as usize;
                    let start = first * row_bytes;
                    out.copy_from_slice(&loaded.column(number)[start..start + out.len()]);
                }
                Ok(())
            })?;
        }
        fill_derived(columns, &samples, out);
        Ok(())
    }

    /// Returns the sample at each position, the task that has loaded it, and its block in the task.
    fn sample_locations(
        &self,
        positions: &[u64],
        plan: &WindowPlan,
    ) -> (Vec<u64>, Vec<(usize, usize)>) {
        let mut samples = Vec::with_capacity(positions.len());
        match &self.layout {
            Layout::Shuffled { window, locations, .. } => {
                let mut places = Vec::with_capacity(positions.len());
                window.for_each(positions, |block, sample| {
                    samples.push(sample);
                    places.push((locations[block].task, locations[block].place));
                });
                (samples, places)
            }
            Layout::Sequential { block_rows } => {
                for run in positions.chunk_by(|one, next| one + 1 == *next) {
                    plan.epoch.append_rows(run[0]..run[0] + run.len() as u64, &mut samples);
                }
                let task =
                    |position: &u64| ((position - self.positions.start) / block_rows) as usize;
                (samples, positions.iter().map(|position| (task(position), 0)).collect())
            }
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

/// Returns rows as one range, if they are one.
pub(super) fn as_range(rows: &[u64]) -> Option<Range<u64>> {
    let first = *rows.first()?;
    are_consecutive(rows).then(|| first..first + rows.len() as u64)
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
