//! How quickly the rows come on this machine: a short try of each way to read them.

use std::time::{Duration, Instant};

use serde::Serialize;
use vramfit_core::{Bytes, Result};

use super::Open;
use crate::mix::{Key, below};

/// Each way is tried for about as long; three of them stay below a fifth of a second.
const TRY: Duration = Duration::from_millis(60);
/// More is not read at once, however large a block is.
const MAX_BYTES: u64 = 8 << 20;
/// What is read at once where rows are read one after another.
const BLOCK_BYTES: u64 = 1 << 20;
/// Single rows that are fetched together: a usual batch.
const BATCH: u64 = 256;

/// What a try has come to.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// Which rows: `blocks` (some neighbours each, anywhere), `rows` (single ones, anywhere) or `in_order`.
    pub way: &'static str,
    /// How many neighbouring rows were read at once.
    pub rows_at_once: u64,
    /// What was read, as it is in memory.
    pub bytes: Bytes,
    /// How long that took.
    pub seconds: f64,
}

impl Speed {
    /// Returns how many million bytes came in a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes.0 as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// Tries three ways to read datasets that have equally many rows, with one thread. What the system has of
/// the file in its memory already comes from there.
///
/// # Errors
///
/// As [`crate::read::Rows::read`].
pub(super) fn measure(group: &[&Open], block_rows: Option<u64>) -> Result<Vec<Speed>> {
    let Some(rows) = group.first().map(|open| open.rows.len()) else {
        return Ok(Vec::new());
    };
    let row_bytes: u64 = group.iter().map(|open| open.rows.row_bytes() as u64).sum();
    if rows == 0 || row_bytes == 0 || row_bytes > MAX_BYTES {
        return Ok(Vec::new());
    }
    let fitting = |wanted: u64| wanted.clamp(1, (MAX_BYTES / row_bytes).clamp(1, rows));
    let usual = fitting(BLOCK_BYTES / row_bytes);
    let block = fitting(block_rows.unwrap_or(usual));
    let key = Key::new(&[rows, row_bytes]);
    let mut buffers: Vec<Vec<u8>> = group.iter().map(|_| Vec::new()).collect();

    let mut anywhere = |step: u64| {
        let start = below(key.at(step), rows.div_ceil(block)) * block;
        let range = start..(start + block).min(rows);
        for (open, buffer) in group.iter().zip(&mut buffers) {
            buffer.resize(
                (range.end - range.start) as usize * open.rows.row_bytes(),
                0,
            );
            open.rows.read(range.clone(), buffer)?;
        }
        Ok(range.end - range.start)
    };
    let blocks = attempt("blocks", block, row_bytes, &mut anywhere)?;

    let batch = fitting(BATCH);
    let mut single = |step: u64| {
        let chosen: Vec<u64> = (0..batch)
            .map(|row| below(key.at(!(step * batch + row)), rows))
            .collect();
        for (open, buffer) in group.iter().zip(&mut buffers) {
            buffer.resize(batch as usize * open.rows.row_bytes(), 0);
            open.rows.gather(&chosen, buffer)?;
        }
        Ok(batch)
    };
    let alone = attempt("rows", 1, row_bytes, &mut single)?;

    let mut following = |step: u64| {
        let start = step % rows.div_ceil(usual) * usual;
        let range = start..(start + usual).min(rows);
        for (open, buffer) in group.iter().zip(&mut buffers) {
            buffer.resize(
                (range.end - range.start) as usize * open.rows.row_bytes(),
                0,
            );
            open.rows.read(range.clone(), buffer)?;
        }
        Ok(range.end - range.start)
    };
    let in_order = attempt("in_order", usual, row_bytes, &mut following)?;
    Ok(vec![blocks, alone, in_order])
}

/// Reads until the time is over, at least once.
fn attempt(
    way: &'static str,
    rows_at_once: u64,
    row_bytes: u64,
    read: &mut dyn FnMut(u64) -> Result<u64>,
) -> Result<Speed> {
    let begin = Instant::now();
    let (mut rows, mut step) = (0, 0);
    while step == 0 || begin.elapsed() < TRY {
        rows += read(step)?;
        step += 1;
    }
    Ok(Speed {
        way,
        rows_at_once,
        bytes: Bytes(rows * row_bytes),
        seconds: begin.elapsed().as_secs_f64(),
    })
}
