//! What the consumer gets: batches whose memory returns to the loader when they are dropped.

use std::sync::Arc;

use super::buffer_pool::Buffer;
use super::shared_state::SharedState;

/// A batch, or several stacked.
#[derive(Debug)]
pub struct Batch {
    /// The rows of each column, one after the other, repeated rows last.
    pub columns: Vec<BatchBuffer>,
    /// For each column the texts or bytes that its elements refer to; none where they refer to none.
    pub objects: Vec<Option<Vec<Vec<u8>>>>,
    /// How many rows of each batch in it are real.
    pub valid: Vec<u64>,
}

/// The memory of one column of a batch. Dropping it returns the memory to its loader.
#[derive(Debug)]
pub struct BatchBuffer {
    /// Present until it is dropped.
    buffer: Option<Buffer>,
    column: usize,
    owner: Arc<SharedState>,
}

impl BatchBuffer {
    pub(super) fn new(buffer: Buffer, column: usize, owner: &Arc<SharedState>) -> Self {
        BatchBuffer { buffer: Some(buffer), column, owner: Arc::clone(owner) }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], Buffer::bytes)
    }

    /// Returns the bytes to write to; their address stays the same while this lives, wherever it is moved.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], Buffer::bytes_mut)
    }
}

impl Drop for BatchBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.owner.recycle(self.column, buffer);
        }
    }
}
