//! Where the time of an epoch went.

use std::time::Duration;

use super::scheduler::PendingBatch;

/// What was done since the loader was opened. Times of reader threads are summed over threads, and include what the
/// consumer's own thread read while it waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches (or stacks of them) handed out.
    pub batches: u64,
    /// Real rows handed out.
    pub rows: u64,
    /// Bytes handed out, padding included.
    pub bytes: u64,
    /// Reader threads: waiting for the disk and decoding.
    pub reading: Duration,
    /// Reader threads: copying rows from windows into batches.
    pub filling: Duration,
    /// Reader threads: with nothing to do, because all buffers were full or the consumer held them.
    pub idle: Duration,
    /// The consumer: waiting for a batch.
    pub waiting: Duration,
    /// Bytes of batches that the consumer holds at the moment.
    pub held_bytes: u64,
    /// Bytes of all batch buffers that were ever allocated; they are recycled.
    pub buffer_bytes: u64,
}

impl Stats {
    /// Adds a batch that is handed out after the consumer has waited.
    pub(super) fn record_batch(&mut self, batch: &PendingBatch, waited: Duration) {
        self.batches += 1;
        self.rows += batch.spec.valid.iter().sum::<u64>();
        let lengths = batch.buffers.iter().map(|buffer| buffer.bytes().len() as u64);
        self.bytes += lengths.sum::<u64>();
        self.waiting += waited;
    }
}
