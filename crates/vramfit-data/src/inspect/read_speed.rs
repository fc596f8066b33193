//! How fast rows are read on this machine: a short trial of each access pattern.

use std::time::{Duration, Instant};

use serde::Serialize;
use vramfit_base::{Bytes, Result};

use super::OpenDataset;
use crate::splitmix::{MixKey, below};

/// The duration of one trial; three of them take less than a fifth of a second.
const TRIAL_TIME: Duration = Duration::from_millis(60);
/// Largest read, however large a block is.
const MAX_BYTES: u64 = 8 << 20;
/// Read size for rows in file order.
const BLOCK_BYTES: u64 = 1 << 20;
/// Single rows that are fetched together.
const BATCH_ROWS: u64 = 256;

/// The result of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct ReadSpeed {
    /// The access pattern: `blocks` (random blocks), `rows` (random single rows) or `sequential`.
    pub pattern: &'static str,
    /// How many consecutive rows were read at a time.
    pub rows_per_read: u64,
    /// Bytes read, as they are in memory.
    pub bytes: Bytes,
    /// The time it took.
    pub seconds: f64,
}

impl ReadSpeed {
    /// Returns the throughput in MB/s.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes.0 as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// Measures three access patterns on datasets with the same number of rows, with one thread. Pages of the file
/// that are in the page cache come from there.
///
/// # Errors
///
/// As [`crate::read::RowReader::read`].
pub(super) fn measure(group: &[&OpenDataset], block_rows: Option<u64>) -> Result<Vec<ReadSpeed>> {
    let Some(rows) = group.first().map(|open| open.rows.len()) else {
        return Ok(Vec::new());
    };
    let row_bytes: u64 = group.iter().map(|open| open.rows.row_bytes() as u64).sum();
    if rows == 0 || row_bytes == 0 || row_bytes > MAX_BYTES {
        return Ok(Vec::new());
    }
    let fitting = |wanted: u64| wanted.clamp(1, (MAX_BYTES / row_bytes).clamp(1, rows));
    let default_rows = fitting(BLOCK_BYTES / row_bytes);
    let block = fitting(block_rows.unwrap_or(default_rows));
    let key = MixKey::new(&[rows, row_bytes]);
    let mut buffers: Vec<Vec<u8>> = group.iter().map(|_| Vec::new()).collect();

    let mut gather_buffers = buffers.clone();

    let mut read_from = |start: u64, count: u64| {
        let count = count.min(rows - start);
        for (open, buffer) in group.iter().zip(&mut buffers) {
            buffer.resize(count as usize * open.rows.row_bytes(), 0);
            open.rows.read(start..start + count, buffer)?;
        }
        Ok(count)
    };
    let mut read_block = |step| read_from(below(key.at(step), rows.div_ceil(block)) * block, block);
    let blocks = run_trial("blocks", block, row_bytes, &mut read_block)?;

    let batch = fitting(BATCH_ROWS);
    let mut read_single = |step: u64| {
        let chosen: Vec<u64> =
            (0..batch).map(|row| below(key.at(!(step * batch + row)), rows)).collect();
        for (open, buffer) in group.iter().zip(&mut gather_buffers) {
            buffer.resize(batch as usize * open.rows.row_bytes(), 0);
            open.rows.gather(&chosen, buffer)?;
        }
        Ok(batch)
    };
    let single = run_trial("rows", 1, row_bytes, &mut read_single)?;

    let blocks_of_file = rows.div_ceil(default_rows);
    let mut read_sequential = |step| read_from(step % blocks_of_file * default_rows, default_rows);
    let sequential = run_trial("sequential", default_rows, row_bytes, &mut read_sequential)?;
    Ok(vec![blocks, single, sequential])
}

/// Reads until the time has elapsed, at least once.
fn run_trial(
    pattern: &'static str,
    rows_per_read: u64,
    row_bytes: u64,
    read: &mut dyn FnMut(u64) -> Result<u64>,
) -> Result<ReadSpeed> {
    let start = Instant::now();
    let (mut rows, mut step) = (0, 0);
    while step == 0 || start.elapsed() < TRIAL_TIME {
        rows += read(step)?;
        step += 1;
    }
    Ok(ReadSpeed {
        pattern,
        rows_per_read,
        bytes: Bytes(rows * row_bytes),
        seconds: start.elapsed().as_secs_f64(),
    })
}
