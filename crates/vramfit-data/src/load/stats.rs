//! Where the time of an epoch went.

use std::time::Duration;

/// What was done since the loader was opened. Times of reader threads are summed over threads; what the
/// consumer's own thread read while it waited is among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches (or stacks of them) handed out.
    pub batches: u64,
    /// Real rows handed out.
    pub rows: u64,
    /// Bytes handed out, repeated rows included.
    pub bytes: u64,
    /// Reader threads: waiting for the disk and decoding.
    pub reading: Duration,
    /// Reader threads: copying rows from pools into batches.
    pub filling: Duration,
    /// Reader threads: with nothing to do, because all memory was full or the consumer had all batches.
    pub idle: Duration,
    /// The consumer: waiting for a batch.
    pub waiting: Duration,
    /// Bytes of batches that the consumer has at the moment.
    pub held_bytes: u64,
    /// Bytes of all batch buffers that were ever made: they are used again, never made anew.
    pub buffer_bytes: u64,
}
