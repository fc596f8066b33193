//! How a file is read, and what the budget is spent on.
//!
//! The order depends on the file and the options alone: not on the machine's memory or
//! processors, nor on the number of processes. Otherwise two hosts would read two orders.

use vramfit_base::{Bytes, Error, Result};

use super::batch::BatchBuffer;
use super::budget::{BudgetTooSmall, MAX_BUDGET, plan_within, required_budget, too_small};
use super::buffer_pool::BufferPool;
use super::column::Column;
use super::columns::Columns;
use super::options::LoaderOptions;
use super::storage::{scratch_bytes, storage, stored_bytes};
use super::window::SequentialWindows;
use crate::order::{Engine, EngineChoice, Layout, MIN_BLOCKS_PER_WINDOW, Storage, choose};

/// Memory of a row of a batch besides its bytes while the batch is filled.
const ROW_OVERHEAD: u64 = 64;

/// So many small batches are kept ready at most, as long as they have few bytes together.
const MAX_SMALL_BATCHES: u64 = 32;
const MAX_SMALL_BATCH_BYTES: u64 = 4 << 20;

/// Blocks of contiguous samples in file order have at most this many bytes.
const SEQUENTIAL_READ: u64 = 1 << 20;

/// So often is a window made smaller by as little as a byte.
const MAX_SMALL_STEPS: u64 = 1000;

/// How a file is read, and with how much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderPlan {
    /// The engine, the reason, and its drawback if any.
    pub choice: EngineChoice,
    /// The windows of reading chunks in file order.
    pub sequential_windows: Option<SequentialWindows>,
    /// Reader threads.
    pub threads: usize,
    /// Whether the consumer's own thread reads while it waits: if the options set no number of threads.
    pub reads_inline: bool,
    /// Batches in memory while the consumer drops those it is done with: held by it, ready, or being filled.
    pub buffers: usize,
    /// Batches that the budget allows if the consumer keeps them.
    pub max_buffers: usize,
    /// Bytes of one batch as it is handed out to this process.
    pub batch_bytes: u64,
    /// The same while it is filled.
    pending_batch_bytes: u64,
    /// The same while the consumer holds it.
    held_batch_bytes: u64,
    /// Bytes of the two windows together.
    pub window_bytes: u64,
    /// Bytes for decoding, on all threads together.
    pub scratch_bytes: u64,
    /// Bytes of the index of chunks.
    pub index_bytes: u64,
    /// The budget.
    pub budget: Bytes,
    /// Type conversions of datasets.
    pub conversions: Vec<String>,
}

impl LoaderPlan {
    /// Makes the plan.
    ///
    /// # Errors
    /// `invalid-argument` when the budget is too small; the hint has one that is enough.
    pub(super) fn new(options: &LoaderOptions, columns: &Columns) -> Result<LoaderPlan> {
        ensure_countable(options)?;
        plan_within(options.budget, |budget| LoaderPlan::try_within(budget, options, columns))
    }

    /// Makes the plan with a budget.
    fn try_within(
        total_budget: Bytes,
        options: &LoaderOptions,
        columns: &Columns,
    ) -> std::result::Result<LoaderPlan, BudgetTooSmall> {
        let budget = total_budget.0;
        let row_bytes = columns.sample_bytes().saturating_add(columns.object_bytes());
        let steps = options.stacked_batches.unwrap_or(1);
        let all_rows = options.batch_size.saturating_mul(steps);
        let own_rows = (options.batch_size / options.shard.count.max(1)).saturating_mul(steps);
        let each = |rows: u64| rows.saturating_mul(row_bytes.saturating_add(ROW_OVERHEAD));
        let (batch, own_batch) = (each(all_rows), each(own_rows).max(1));

        let layout = lay_out(budget, options, columns);
        let uses_windows = match layout.storage {
            _ if columns.samples.is_groups() => false,
            Storage::Chunked { .. } | Storage::LastAxis { .. } => true,
            Storage::Contiguous => {
                (options.shuffle || !columns.samples.is_rows()) && layout.uses_windows()
            }
        };
        let scratch = scratch_bytes(columns, uses_windows);
        let index_bytes = columns.index_bytes(budget);
        let fixed = scratch.saturating_add(index_bytes);
        let block_bytes = |rows| block_bytes(options, columns, rows);
        let band = if uses_windows { block_bytes(layout.band_rows()).max(1) } else { 0 };
        let refuse = |window: u64| {
            let required = required_budget(fixed, batch, window);
            Err(BudgetTooSmall { what: too_small(total_budget, batch, window, fixed), required })
        };
        if budget < required_budget(fixed, batch, band) {
            return refuse(band);
        }

        // One quarter for batches, one eighth for decoding on more than one thread, the rest for windows.
        let for_threads = budget / 8;
        let for_batches =
            if uses_windows { (budget / 4).max(2 * batch) } else { budget - for_threads - fixed };
        let window = (budget - for_threads - fixed - for_batches) / 2;
        let wanted = options.threads.unwrap_or_else(default_threads).max(1);
        let threads = 1 + (wanted - 1).min((for_threads / scratch.max(1)) as usize);
        // It decodes as well, in memory of its own.
        let reads_inline = options.threads.is_none() && threads as u64 * scratch <= for_threads;
        let buffers = (for_batches / own_batch).min(useful_buffers(threads, own_batch)) as usize;

        let (choice, sequential_windows) = match (options.shuffle, uses_windows) {
            (false, false) => (choice_of(Engine::Sequential, "rows are read in file order"), None),
            (true, false) if columns.samples.is_groups() => {
                (choice_of(Engine::GlobalShuffle, "each group is read as a whole"), None)
            }
            (false, true) => {
                let reason = match layout.storage {
                    Storage::Chunked { .. } => "rows are read in file order, and chunks as a whole",
                    Storage::LastAxis { .. } => "rows are read in file order, many together",
                    Storage::Contiguous => {
                        "rows are read in file order, and those that samples share only once"
                    }
                };
                let mut block_rows = layout.band_rows();
                if layout.storage == Storage::Contiguous {
                    while block_rows < layout.rows
                        && block_bytes(2 * block_rows) <= SEQUENTIAL_READ.min(window)
                    {
                        block_rows *= 2;
                    }
                }
                let blocks = (window / block_bytes(block_rows).max(1)).clamp(1, 2 * threads as u64);
                let windows = SequentialWindows { blocks, block_rows };
                (choice_of(Engine::Sequential, reason), Some(windows))
            }
            (true, _) => {
                let budget_for = |window| required_budget(fixed, batch, window);
                (choose_windows(layout, window, budget_for, options, columns), None)
            }
        };
        let window_bytes = window_bytes(choice.engine, sequential_windows, options, columns);
        if fixed.saturating_add(window_bytes).saturating_add(2 * batch) > budget {
            return refuse(window_bytes / 2);
        }
        let mut plan = LoaderPlan {
            choice,
            sequential_windows,
            threads,
            reads_inline,
            buffers,
            max_buffers: buffers,
            batch_bytes: own_rows.saturating_mul(row_bytes),
            pending_batch_bytes: own_batch,
            held_batch_bytes: held_batch_bytes(&columns.batch_lengths(options))
                .saturating_add(own_rows.saturating_mul(columns.object_bytes())),
            window_bytes,
            scratch_bytes: scratch * (threads as u64 + u64::from(reads_inline)),
            index_bytes,
            budget: total_budget,
            conversions: columns.columns.iter().filter_map(conversion).collect(),
        };
        plan.max_buffers = plan.count_max_buffers();
        Ok(plan)
    }

    /// Returns how many batches the budget allows, of which `buffers` may be pending.
    fn count_max_buffers(&self) -> usize {
        let fixed = self.window_bytes + self.scratch_bytes + self.index_bytes;
        let pending = self.buffers as u64 * self.pending_batch_bytes;
        let left = self.budget.0.saturating_sub(fixed + pending);
        self.buffers + (left / self.held_batch_bytes) as usize
    }

    /// Returns a budget that allows a program to keep this many batches.
    pub(super) fn budget_to_keep(
        &self,
        batches: u64,
        options: &LoaderOptions,
        columns: &Columns,
    ) -> Bytes {
        let held = batches.saturating_mul(self.held_batch_bytes);
        let pending = (self.buffers as u64).saturating_mul(self.pending_batch_bytes);
        let fixed = held
            .saturating_add(pending)
            .saturating_add(self.index_bytes)
            .saturating_add(self.scratch_bytes);
        // Windows are never larger than twice the datasets, nor than five eighths of the budget; an eighth is for
        // more threads than one.
        let dataset_bytes = columns.len().saturating_mul(columns.read_bytes());
        let with_windows = fixed.saturating_add(dataset_bytes.saturating_mul(2));
        let required = (with_windows.saturating_mul(8) / 7).min(fixed.saturating_mul(8) / 3);
        let mut budget = required.max(self.budget.0).min(MAX_BUDGET).next_multiple_of(1 << 20);
        let is_enough = |budget| {
            LoaderPlan::try_within(Bytes(budget), options, columns)
                .is_ok_and(|plan| plan.max_buffers as u64 >= batches)
        };
        while budget < MAX_BUDGET && !is_enough(budget) {
            budget = (budget + budget / 8).next_multiple_of(1 << 20);
        }
        Bytes(budget)
    }

    /// Returns the plan for an order that was started elsewhere, perhaps with another budget.
    ///
    /// # Errors
    /// `invalid-argument` when its windows exceed this budget.
    pub(super) fn with_engine(
        &self,
        engine: Engine,
        options: &LoaderOptions,
        columns: &Columns,
    ) -> Result<LoaderPlan> {
        plan_within(self.budget, |budget| {
            let plan = match budget == self.budget {
                true => self.clone(),
                false => LoaderPlan::try_within(budget, options, columns)?,
            };
            plan.replace_engine(engine, options, columns)
        })
    }

    fn replace_engine(
        mut self,
        engine: Engine,
        options: &LoaderOptions,
        columns: &Columns,
    ) -> std::result::Result<LoaderPlan, BudgetTooSmall> {
        if engine == self.choice.engine {
            return Ok(self);
        }
        self.choice = choice_of(engine, "it continues a saved order");
        self.window_bytes = window_bytes(engine, self.sequential_windows, options, columns);
        self.sequential_windows =
            (self.sequential_windows).filter(|_| engine == Engine::Sequential);
        let scratch = scratch_bytes(columns, self.window_bytes > 0);
        self.scratch_bytes = scratch * (self.threads as u64 + u64::from(self.reads_inline));
        let fixed =
            self.window_bytes.saturating_add(self.scratch_bytes).saturating_add(self.index_bytes);
        let batch = self.pending_batch_bytes;
        let buffers = self.budget.0.saturating_sub(fixed) / batch;
        if buffers < 2 {
            let what = format!(
                "the saved order shuffles windows of {}, which exceed the memory budget of {}",
                Bytes(self.window_bytes / 2),
                self.budget
            );
            return Err(BudgetTooSmall { what, required: fixed.saturating_add(2 * batch) });
        }
        self.buffers = buffers.min(useful_buffers(self.threads, batch)) as usize;
        self.max_buffers = self.count_max_buffers();
        Ok(self)
    }

    /// Describes the plan, line by line.
    pub fn to_text(&self) -> String {
        let mut lines =
            vec![format!("engine: {}: {}", self.choice.engine.name(), self.choice.reason)];
        lines.extend(self.choice.warning.iter().map(|it| format!("warning: {it}")));
        lines.push(if self.conversions.is_empty() {
            "types: as in the file".into()
        } else {
            format!("types: {}", self.conversions.join(", "))
        });
        let threads = match self.threads {
            1 => "1 reader thread".to_owned(),
            many => format!("{many} reader threads"),
        };
        let own = if self.reads_inline {
            ", plus the program's own while it waits for a batch"
        } else {
            ""
        };
        lines.push(format!("threads: {threads}{own}"));
        let buffers = self.batch_bytes.saturating_mul(self.buffers as u64);
        lines.push(format!(
            "memory: at most {} (windows {}, {} batches {}, decoding {}, chunk index {}) of a budget of {}",
            Bytes(self.window_bytes + buffers + self.scratch_bytes + self.index_bytes),
            Bytes(self.window_bytes),
            self.buffers,
            Bytes(buffers),
            Bytes(self.scratch_bytes),
            Bytes(self.index_bytes),
            self.budget
        ));
        lines.join("\n")
    }
}

/// Returns how many batches are useful: each thread fills one while another waits, and the consumer
/// holds some. Of small ones there are more, so that threads are not woken for each.
fn useful_buffers(threads: usize, batch: u64) -> u64 {
    (2 * threads as u64 + 4).max((MAX_SMALL_BATCH_BYTES / batch).min(MAX_SMALL_BATCHES))
}

/// Returns how the samples are stored, as far as the order depends on it.
fn lay_out(budget: u64, options: &LoaderOptions, columns: &Columns) -> Layout {
    let mut layout = Layout {
        rows: columns.len(),
        row_bytes: columns.read_bytes(),
        stored_bytes: stored_bytes(columns),
        storage: storage(columns),
    };
    let Storage::Chunked { band_rows } = layout.storage else {
        return layout;
    };
    if !columns.is_unaligned() {
        return layout;
    }
    // Blocks begin and end in the middle of chunks, which are then decoded twice: larger ones less often.
    for bands in [4, 2, 1] {
        let band_rows = columns.samples_of_rows(band_rows.saturating_mul(bands));
        layout.storage = Storage::Chunked { band_rows };
        let bytes = block_bytes(options, columns, layout.band_rows());
        if bytes.saturating_mul(2 * MIN_BLOCKS_PER_WINDOW) <= budget {
            break;
        }
    }
    layout
}

/// Chooses windows of at most `window` bytes. Samples have different numbers of rows, or share some, so the bytes of a
/// window are known only once it is chosen.
fn choose_windows(
    layout: Layout,
    window: u64,
    budget_for: impl Fn(u64) -> u64,
    options: &LoaderOptions,
    columns: &Columns,
) -> EngineChoice {
    let mut allowed = window;
    let mut steps = 0;
    loop {
        let choice = choose(layout, Bytes(allowed), &budget_for);
        let bytes = window_bytes(choice.engine, None, options, columns) / 2;
        let is_least = allowed <= layout.band_bytes();
        if columns.samples.is_rows() || bytes <= window || is_least {
            return choice;
        }
        let scaled = u128::from(allowed) * u128::from(window) / u128::from(bytes);
        let mut next = (scaled as u64).min(allowed - 1);
        if steps >= MAX_SMALL_STEPS {
            // The choice is the same until there is a band less than all, or than now.
            let bands = layout.rows.div_ceil(layout.band_rows());
            let held = (allowed / layout.band_bytes()).clamp(1, bands.max(1));
            next = next.min(held.saturating_mul(layout.band_bytes()) - 1);
        }
        allowed = next.max(layout.band_bytes());
        steps += 1;
    }
}

/// Returns the bytes of the rows of a block of samples at most.
pub(super) fn block_bytes(options: &LoaderOptions, columns: &Columns, rows: u64) -> u64 {
    let is_part = options.split.is_some() || options.selection.is_some();
    if is_part && !options.shuffle && !columns.samples.is_rows() {
        // Samples in file order that do not follow each other share no rows.
        let bytes = columns.columns.iter().map(|column| column.sample_bytes() as u64);
        return rows.saturating_mul(bytes.fold(0, u64::saturating_add));
    }
    columns.block_bytes(rows)
}

/// Returns the bytes of the two windows of an engine.
fn window_bytes(
    engine: Engine,
    sequential_windows: Option<SequentialWindows>,
    options: &LoaderOptions,
    columns: &Columns,
) -> u64 {
    let (blocks, rows) = match (engine.window_size(), sequential_windows) {
        (Some(size), _) => (size.window_blocks, size.block_rows),
        (None, Some(windows)) => (windows.blocks, windows.block_rows),
        (None, None) => return 0,
    };
    if columns.samples.is_rows() {
        let rows = rows.saturating_mul(blocks).min(columns.len());
        return columns.block_bytes(rows).saturating_mul(2);
    }
    block_bytes(options, columns, rows).saturating_mul(blocks).saturating_mul(2)
}

/// Returns half of the processors: the other half is for the program.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

/// Rejects batches, or stacks of them, that are too large to be counted.
fn ensure_countable(options: &LoaderOptions) -> Result<()> {
    let steps = options.stacked_batches.unwrap_or(1);
    let invalid = |what: &str| {
        let error = Error::invalid_argument(what);
        Err(error.hint("use smaller batches, in stacks of 1 to 2^20"))
    };
    if steps == 0 {
        return invalid("the number of batches in a stack is 0");
    }
    match options.batch_size.checked_mul(steps) {
        Some(rows) if rows <= 1 << 40 => Ok(()),
        _ => invalid("the batch size exceeds 2^40 rows"),
    }
}

/// Returns the bytes of a batch that the consumer holds.
fn held_batch_bytes(lengths: &[usize]) -> u64 {
    let handles = lengths.len() * size_of::<BatchBuffer>();
    (BufferPool::set_bytes(lengths) + handles as u64).max(1)
}

fn choice_of(engine: Engine, reason: &str) -> EngineChoice {
    EngineChoice { engine, reason: reason.into(), warning: None }
}

fn conversion(column: &Column) -> Option<String> {
    if column.bytes().is_some() {
        return None;
    }
    let to = column.scalar().name();
    (column.stored_as() != to)
        .then(|| format!("`{}` from {} to {to}", column.name(), column.stored_as()))
}
