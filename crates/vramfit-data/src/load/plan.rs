//! Which engine goes through a file, and what the budget is spent on.
//!
//! What decides the order depends on the file and the request alone: not on the machine's memory or
//! processors, nor on the number of processes. Otherwise two hosts would read two orders.

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::buffer::Stock;
use super::columns::{Column, Columns};
use super::request::Request;
use crate::order::{Choice, Engine, Layout, Storage, choose};
use crate::read;

/// What is read at once where rows lie one after the other, which is the scratch of a thread.
const CONTIGUOUS_SCRATCH: u64 = 1 << 20;

/// Memory that a row of a batch takes besides its bytes while the batch is filled.
const ROW_OVERHEAD: u64 = 64;

/// So many small batches are ready at most, as long as they have few bytes together.
const MAX_SMALL_BATCHES: u64 = 32;
const MAX_SMALL_BATCH_BYTES: u64 = 4 << 20;

/// Memory of an entry in the index of chunks.
const CHUNK_OVERHEAD: u64 = 32;

/// More chunks than this many rows are not aligned with those of other datasets.
const MAX_COMMON_BAND: u64 = 1 << 20;

/// How a file is gone through, and in what memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The engine, with its reason and what is lost by it.
    pub choice: Choice,
    /// Blocks of a room and rows of a block, where chunks are read in the order of the file.
    pub in_order: Option<(u64, u64)>,
    /// Reader threads.
    pub threads: usize,
    /// Whether the consumer's own thread reads while it waits: where nobody said how many threads shall.
    pub helps: bool,
    /// Batches that are in memory as long as the consumer drops what it is done with: with it, waiting, or being
    /// filled.
    pub sets: usize,
    /// Batches that the budget has room for, where the consumer keeps them.
    pub max_sets: usize,
    /// Bytes of one batch as it is handed out to this process.
    pub batch_bytes: u64,
    /// The same with what it takes to fill it.
    unit_bytes: u64,
    /// Bytes of the memory of a batch that the consumer keeps.
    kept_bytes: u64,
    /// Bytes of the two pools together.
    pub pool_bytes: u64,
    /// Bytes that decoding takes, on all threads together.
    pub scratch_bytes: u64,
    /// Bytes of the index of chunks.
    pub index_bytes: u64,
    /// The budget.
    pub budget: Bytes,
    /// What the numbers of which dataset become, where they are not what the file has.
    pub conversions: Vec<String>,
}

impl Plan {
    /// Makes the plan for a request.
    ///
    /// # Errors
    /// `invalid-argument` when the budget is too small; the hint has the one that would do.
    pub(super) fn new(request: &Request, columns: &Columns) -> Result<Plan> {
        let budget = request.budget.0;
        let row_bytes = columns.row_bytes();
        let rows_in_all = rows_of(request, request.batch_size)?;
        let rows_here = rows_of(request, request.batch_size / request.world.processes.max(1))?;
        let each = |rows: u64| rows.saturating_mul(row_bytes.saturating_add(ROW_OVERHEAD));
        let (unit, unit_here) = (each(rows_in_all), each(rows_here).max(1));

        let layout = Layout {
            rows: columns.len(),
            row_bytes,
            stored_bytes: stored_bytes(columns),
            storage: storage(columns),
        };
        let is_pooled = match layout.storage {
            Storage::Chunked { .. } => true,
            Storage::Contiguous => request.shuffle && layout.is_pooled(),
        };
        let scratch = columns.columns.iter();
        let scratch: u64 = scratch.map(|column| scratch_of(column, is_pooled)).sum();
        let index_bytes = columns.fingerprint().chunks.saturating_mul(CHUNK_OVERHEAD);
        let fixed = scratch.saturating_add(index_bytes);
        let band = match is_pooled {
            true => layout.band_bytes(),
            false => 0,
        };
        let least = needed(fixed, unit, band);
        if budget < least {
            return Err(too_small(request.budget, least, unit, band, fixed));
        }

        // One quarter for batches, one eighth for what more threads than one decode in, the rest for pools.
        let more = budget / 8;
        let for_batches = match is_pooled {
            true => (budget / 4).max(2 * unit),
            false => budget - more - fixed,
        };
        let pool = (budget - more - fixed - for_batches) / 2;
        let wanted = request.threads.unwrap_or_else(default_threads).max(1);
        let threads = 1 + (wanted - 1).min((more / scratch.max(1)) as usize);
        // It decodes, too, and in memory of its own.
        let helps = request.threads.is_none() && threads as u64 * scratch <= more;
        let sets = (for_batches / unit_here).min(most_sets(threads, unit_here)) as usize;

        let (choice, in_order) = match (request.shuffle, is_pooled) {
            (false, false) => (told(Engine::Sequential, "in the order of the file"), None),
            (false, true) => {
                let blocks = (pool / band).clamp(1, 2 * threads as u64);
                let reason = "in the order of the file, whose chunks are read whole";
                let rooms = (blocks, layout.band_rows());
                (told(Engine::Sequential, reason), Some(rooms))
            }
            (true, _) => {
                let budget_for = |pool| needed(fixed, unit, pool);
                (choose(layout, Bytes(pool), budget_for), None)
            }
        };
        let pool_bytes = pool_bytes(choice.engine, in_order, columns);
        let mut plan = Plan {
            choice,
            in_order,
            threads,
            helps,
            sets,
            max_sets: sets,
            batch_bytes: rows_here.saturating_mul(row_bytes),
            unit_bytes: unit_here,
            kept_bytes: Stock::bytes_of_set(&columns.lengths(request)).max(1),
            pool_bytes,
            scratch_bytes: scratch * (threads as u64 + u64::from(helps)),
            index_bytes,
            budget: request.budget,
            conversions: columns.columns.iter().filter_map(conversion).collect(),
        };
        plan.max_sets = plan.count_max_sets();
        Ok(plan)
    }

    /// Returns how many batches the budget has room for beside all else, of which `sets` may be on their way.
    fn count_max_sets(&self) -> usize {
        let fixed = self.pool_bytes + self.scratch_bytes + self.index_bytes;
        let on_their_way = self.sets as u64 * self.unit_bytes;
        let left = self.budget.0.saturating_sub(fixed + on_their_way);
        self.sets + (left / self.kept_bytes) as usize
    }

    /// Returns a budget that has room for so many batches that a program keeps, whatever pools it makes.
    pub fn budget_to_keep(&self, batches: u64, dataset_bytes: u64) -> Bytes {
        let kept = batches.saturating_mul(self.kept_bytes);
        let on_their_way = (self.sets as u64).saturating_mul(self.unit_bytes);
        let fixed = kept
            .saturating_add(on_their_way)
            .saturating_add(self.index_bytes)
            .saturating_add(self.scratch_bytes);
        // Pools are never larger than twice the datasets, nor than five eighths of the budget; an eighth is for
        // more threads than one.
        let beside_pools = fixed.saturating_add(dataset_bytes.saturating_mul(2));
        let least = (beside_pools.saturating_mul(8) / 7).min(fixed.saturating_mul(8) / 3);
        Bytes(least.max(self.budget.0).next_multiple_of(1 << 20))
    }

    /// Returns the plan for an order that was begun elsewhere, with another budget perhaps.
    ///
    /// # Errors
    /// `invalid-argument` when its pools do not fit into this budget.
    pub(super) fn with_engine(&self, engine: Engine, columns: &Columns) -> Result<Plan> {
        let mut plan = self.clone();
        if engine == self.choice.engine {
            return Ok(plan);
        }
        plan.choice = told(engine, "it continues an order that was begun so");
        plan.pool_bytes = pool_bytes(engine, self.in_order, columns);
        plan.in_order = self.in_order.filter(|_| engine == Engine::Sequential);
        let is_pooled = plan.pool_bytes > 0;
        let scratch = columns.columns.iter();
        let scratch: u64 = scratch.map(|column| scratch_of(column, is_pooled)).sum();
        plan.scratch_bytes = scratch * (plan.threads as u64 + u64::from(plan.helps));
        let fixed = plan.pool_bytes + plan.scratch_bytes + self.index_bytes;
        let unit = self.unit_bytes;
        let sets = self.budget.0.saturating_sub(fixed) / unit;
        if sets < 2 {
            let needed = fixed + 2 * unit;
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the order that was begun mixes {} at a time, for which a budget of {} has no room",
                    Bytes(plan.pool_bytes / 2),
                    self.budget
                ),
            )
            .hint(format!("give at least {} ({needed} bytes)", Bytes(needed))));
        }
        plan.sets = sets.min(most_sets(plan.threads, unit)) as usize;
        plan.max_sets = plan.count_max_sets();
        Ok(plan)
    }

    /// Returns the plan in words, line by line.
    pub fn to_text(&self) -> String {
        let mut lines = vec![format!(
            "engine: {}: {}",
            self.choice.engine.name(),
            self.choice.reason
        )];
        lines.extend(
            self.choice
                .warning
                .iter()
                .map(|it| format!("warning: {it}")),
        );
        match self.conversions.is_empty() {
            true => lines.push("types: as in the file".into()),
            false => lines.push(format!("types: {}", self.conversions.join(", "))),
        }
        let threads = match self.threads {
            1 => "1 reader thread".to_owned(),
            many => format!("{many} reader threads"),
        };
        let own = match self.helps {
            true => ", and the program's own while it waits for a batch",
            false => "",
        };
        lines.push(format!("threads: {threads}{own}"));
        let buffers = self.batch_bytes.saturating_mul(self.sets as u64);
        lines.push(format!(
            "memory: at most {} = pools {} + {} batches {} + decoding {} + index {}, of a budget of {}",
            Bytes(self.pool_bytes + buffers + self.scratch_bytes + self.index_bytes),
            Bytes(self.pool_bytes),
            self.sets,
            Bytes(buffers),
            Bytes(self.scratch_bytes),
            Bytes(self.index_bytes),
            self.budget
        ));
        lines.join("\n")
    }
}

/// Returns how many batches are of any use: each thread fills one while another waits, and the consumer
/// has some. Of small ones there are more, so that threads are not woken for each.
fn most_sets(threads: usize, unit: u64) -> u64 {
    (2 * threads as u64 + 4).max((MAX_SMALL_BATCH_BYTES / unit).min(MAX_SMALL_BATCHES))
}

/// Returns the bytes of the two pools of an engine.
fn pool_bytes(engine: Engine, in_order: Option<(u64, u64)>, columns: &Columns) -> u64 {
    let rows = match (engine.pools(), in_order) {
        (Some(pools), _) => pools.block_rows.saturating_mul(pools.pool_blocks),
        (None, Some((blocks, rows))) => blocks * rows,
        (None, None) => 0,
    };
    rows.min(columns.len())
        .saturating_mul(2 * columns.row_bytes())
}

/// Returns half of the processors: the other half is for what is done with the rows.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

fn rows_of(request: &Request, batch: u64) -> Result<u64> {
    let steps = request.super_batch.unwrap_or(1);
    let refuse = |what: &str| {
        let error = Error::new(ErrorKind::InvalidArgument, what);
        Err(error.hint("take smaller batches, stacked 1 to 2^20 at a time"))
    };
    if steps == 0 {
        return refuse("a stack of 0 batches holds nothing");
    }
    match batch.checked_mul(steps) {
        Some(rows) if rows <= 1 << 40 => Ok(rows),
        _ => refuse("a batch of more than 2^40 rows is not made"),
    }
}

fn told(engine: Engine, reason: &str) -> Choice {
    Choice {
        engine,
        reason: reason.into(),
        warning: None,
    }
}

/// Returns the smallest budget for so many fixed bytes, a batch, and two pools of so many bytes.
fn needed(fixed: u64, unit: u64, pool: u64) -> u64 {
    let small = fixed.saturating_add(pool.saturating_mul(2));
    let with_batches = small.saturating_add(unit.saturating_mul(2));
    (with_batches.saturating_mul(8).div_ceil(7))
        .max(match pool {
            0 => 0,
            _ => small.saturating_mul(8).div_ceil(5),
        })
        .saturating_add(64)
}

fn too_small(budget: Bytes, needed: u64, unit: u64, band: u64, fixed: u64) -> Error {
    let pools = match band {
        0 => String::new(),
        _ => format!(", two times {} of rows that are read together", Bytes(band)),
    };
    Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "a budget of {budget} has no room for two batches of {}{pools} and {} for decoding",
            Bytes(unit),
            Bytes(fixed)
        ),
    )
    .hint(format!("give at least {} ({needed} bytes)", Bytes(needed)))
}

/// Returns how the rows of all columns lie.
fn storage(columns: &Columns) -> Storage {
    let mut common: Option<u64> = None;
    for column in &columns.columns {
        let Some(rows) = band(column.rows().dataset()) else {
            continue;
        };
        common = Some(match common {
            None => rows,
            Some(other) => {
                let least = rows / greatest_common_divisor(rows, other);
                match least.checked_mul(other) {
                    Some(least) if least <= MAX_COMMON_BAND => least,
                    _ => rows.max(other),
                }
            }
        });
    }
    common.map_or(Storage::Contiguous, |band_rows| Storage::Chunked {
        band_rows,
    })
}

/// Returns how many rows of a dataset have to be read together.
fn band(dataset: &read::Dataset) -> Option<u64> {
    match dataset.storage() {
        read::Storage::Compact(_) | read::Storage::Contiguous(_) => None,
        read::Storage::Chunked { grid, .. } => Some(grid.chunk()[0].min(dataset.shape()[0]).max(1)),
        read::Storage::Virtual(pieces) => {
            pieces.iter().filter_map(|piece| band(&piece.dataset)).max()
        }
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Returns the bytes that a thread needs to decode a column, whose rows are read into blocks of pools or
/// one by one.
fn scratch_of(column: &Column, is_pooled: bool) -> u64 {
    fn of(dataset: &read::Dataset, is_in_place: bool) -> u64 {
        match dataset.storage() {
            read::Storage::Compact(_) => 0,
            read::Storage::Contiguous(_) if is_in_place => 0,
            read::Storage::Contiguous(_) => {
                let row = dataset.bytes() / dataset.shape()[0].max(1);
                CONTIGUOUS_SCRATCH.max(row).min(dataset.bytes())
            }
            read::Storage::Chunked { grid, table, .. } => {
                let stored = table.iter().map(|chunk| chunk.size).max().unwrap_or(0);
                // What is stored, what it becomes, and what is between two filters.
                stored.saturating_add(grid.chunk_bytes().saturating_mul(2))
            }
            read::Storage::Virtual(pieces) => {
                // Each piece has a reader of its own.
                let pieces = pieces.iter();
                pieces.map(|piece| of(&piece.dataset, is_in_place)).sum()
            }
        }
    }
    let rows = column.rows();
    of(rows.dataset(), is_pooled && rows.is_unchanged())
}

fn stored_bytes(columns: &Columns) -> u64 {
    let bytes = columns.columns.iter();
    bytes.map(|c| c.rows().dataset().stored_bytes()).sum()
}

fn conversion(column: &Column) -> Option<String> {
    let to = column.rows().scalar().name();
    (column.stored_as() != to)
        .then(|| format!("`{}` from {} to {to}", column.name(), column.stored_as()))
}
