//! What is handed out at once: a batch, or several stacked, of which one process has its share.

use std::ops::Range;

use vramfit_core::Result;

use super::request::Request;
use crate::order::{Batches, World};

/// How an epoch is cut, from a position on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    batches: Batches,
    batch_size: u64,
    steps: u64,
    world: World,
    start: u64,
    /// Units from `start` on.
    count: u64,
    /// The position behind the last row that is handed out.
    end: u64,
}

/// One unit.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) sequence: u64,
    /// The position of each row, never falling; those that are repeated stand behind the real ones.
    pub(super) positions: Vec<u64>,
    /// How many rows of each batch in it are real.
    pub(super) valid: Vec<u64>,
    /// The position behind it, all processes together.
    pub(super) end: u64,
}

impl Cut {
    /// Cuts an epoch of `rows` rows as a request has it, from a position on.
    pub(super) fn of(request: &Request, rows: u64, start: u64) -> Result<Cut> {
        Cut::new(
            rows,
            request.batch_size,
            request.super_batch.unwrap_or(1),
            request.last,
            request.world,
            start,
        )
    }

    /// Cuts an epoch of `rows` rows from `start` on.
    pub(super) fn new(
        rows: u64,
        batch_size: u64,
        steps: u64,
        last: crate::order::Last,
        world: World,
        start: u64,
    ) -> Result<Cut> {
        let batches = Batches::new(rows, batch_size, last)?;
        // Divides the batch among processes, or says why it cannot be divided.
        if let Some(batch) = batches.get(0) {
            batch.share(world)?;
        }
        let left = rows.saturating_sub(start);
        let (count, end) = match last {
            crate::order::Last::Drop => {
                let count = left / batch_size / steps;
                (count, start + count * steps * batch_size)
            }
            crate::order::Last::Pad => (left.div_ceil(batch_size).div_ceil(steps), rows),
        };
        Ok(Cut {
            batches,
            batch_size,
            steps,
            world,
            start,
            count,
            end,
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the positions that a unit has, all processes together.
    pub(super) fn span(&self, sequence: u64) -> Range<u64> {
        let size = self.steps * self.batch_size;
        let start = self.start + sequence * size;
        start..(start + size).min(self.end)
    }

    /// Returns the positions that are handed out, all processes together.
    pub(super) fn all(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Returns how many units have positions in a range that has some of them.
    pub(super) fn units_in(&self, positions: &Range<u64>) -> u64 {
        let size = self.steps * self.batch_size;
        let first = positions.start.max(self.start) - self.start;
        let last = positions.end.min(self.end) - 1 - self.start;
        last / size - first / size + 1
    }

    pub(super) fn unit(&self, sequence: u64) -> Result<Unit> {
        let span = self.span(sequence);
        let share = self.batch_size / self.world.processes;
        let mut positions = Vec::with_capacity((self.steps * share) as usize);
        let mut valid = Vec::with_capacity(self.steps as usize);
        for step in 0..self.steps {
            let Some(batch) = self.batches.at(span.start + step * self.batch_size) else {
                // The epoch ends inside a stack: what is missing is repeated rows only.
                valid.push(0);
                positions.extend((0..share).map(|_| span.end - 1));
                continue;
            };
            let share = batch.share(self.world)?;
            valid.push(share.positions.end - share.positions.start);
            positions.extend(share.positions);
            positions.extend((0..share.padding).map(|_| share.repeated));
        }
        Ok(Unit {
            sequence,
            positions,
            valid,
            end: span.end,
        })
    }
}
