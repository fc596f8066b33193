//! Memory for batches: made once, lent out, and back when the last who looks at it has let go.

use std::sync::Arc;

use super::desk::Desk;

/// A boundary that lets JAX use the memory in place, and that vector instructions like.
const ALIGNMENT: usize = 64;

/// As many bytes as take much longer to make than a thread takes to wake.
const SEVERAL_BYTES: usize = 512 << 10;

/// What fills memory that came back, in a test that wants to see who still looks at it.
const POISON: u8 = 0xa5;

/// Aligned memory of a fixed length.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer {
            bytes,
            start,
            length,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// One column's part of a batch. Dropping it gives the memory back to the loader it came from.
#[derive(Debug)]
pub struct Lease {
    /// There until it is dropped.
    buffer: Option<Buffer>,
    column: usize,
    home: Arc<Desk>,
}

impl Lease {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.buffer {
            Some(buffer) => &buffer.bytes[buffer.start..buffer.start + buffer.length],
            None => &[],
        }
    }

    /// Returns the bytes, to be written; their place stays the same as long as this lives, wherever it
    /// is moved.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], Buffer::bytes_mut)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.home.give_back(self.column, Returned(buffer));
        }
    }
}

/// A buffer on its way back.
#[derive(Debug)]
pub(super) struct Returned(Buffer);

/// The buffers of one loader: as many sets as are of use, and more where the consumer keeps them, but never more than
/// the budget has room for.
#[derive(Debug)]
pub(super) struct Stock {
    lengths: Vec<usize>,
    free: Vec<Vec<Buffer>>,
    made: Vec<usize>,
    most: usize,
    max: usize,
    poison: bool,
}

impl Stock {
    /// Begins with at most `most` sets, which may grow to `max`.
    pub(super) fn new(lengths: Vec<usize>, most: usize, max: usize, poison: bool) -> Self {
        let columns = lengths.len();
        Stock {
            lengths,
            free: (0..columns).map(|_| Vec::new()).collect(),
            made: vec![0; columns],
            most,
            max: max.max(most),
            poison,
        }
    }

    /// Changes how many sets there may be, and up to how many they may grow.
    pub(super) fn set_most(&mut self, most: usize, max: usize) {
        (self.most, self.max) = (most, max.max(most));
    }

    /// Allows more sets, where the budget has room for them. Returns whether there may be more now.
    pub(super) fn grow(&mut self) -> bool {
        let before = self.most;
        self.most = before.saturating_mul(2).min(self.max);
        self.most > before
    }

    /// Returns how many bytes a set of buffers of such lengths takes.
    pub(super) fn bytes_of_set(lengths: &[usize]) -> u64 {
        let each = size_of::<Buffer>() + size_of::<Lease>() + ALIGNMENT;
        lengths.iter().map(|length| (length + each) as u64).sum()
    }

    /// Whether a whole batch can be made.
    pub(super) fn has_set(&self) -> bool {
        self.free_sets() > 0
    }

    /// Returns how many whole batches can be made.
    pub(super) fn free_sets(&self) -> usize {
        let columns = self.free.iter().zip(&self.made);
        let sets = columns.map(|(free, made)| free.len() + self.most.saturating_sub(*made));
        sets.min().unwrap_or(0)
    }

    /// Returns how many batches are worth waking the consumer for; of large ones each is.
    pub(super) fn several(&self) -> usize {
        let bytes: usize = self.lengths.iter().sum();
        (SEVERAL_BYTES / bytes.max(1)).clamp(1, (self.most / 4).max(1))
    }

    /// Returns how many batches a thread makes at a time: half of what the consumer is woken for, so that
    /// it has the others while these are made.
    pub(super) fn together(&self) -> usize {
        (self.several() / 2).max(1)
    }

    /// Takes memory for a batch, where there is some.
    pub(super) fn take_set(&mut self, home: &Arc<Desk>) -> Option<Vec<Lease>> {
        if !self.has_set() {
            return None;
        }
        let mut set = Vec::with_capacity(self.lengths.len());
        for column in 0..self.lengths.len() {
            let buffer = self.free[column].pop().unwrap_or_else(|| {
                self.made[column] += 1;
                Buffer::new(self.lengths[column])
            });
            set.push(Lease {
                buffer: Some(buffer),
                column,
                home: Arc::clone(home),
            });
        }
        Some(set)
    }

    pub(super) fn give_back(&mut self, column: usize, Returned(mut buffer): Returned) {
        if self.poison {
            buffer.bytes_mut().fill(POISON);
        }
        self.free[column].push(buffer);
    }

    /// Returns the bytes of all buffers, and of those that are lent out.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let mut all = 0;
        let mut lent = 0;
        for column in 0..self.lengths.len() {
            let length = (self.lengths[column] + ALIGNMENT) as u64;
            all += length * self.made[column] as u64;
            lent += length * (self.made[column] - self.free[column].len()) as u64;
        }
        (all, lent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_of_their_length() {
        for length in [0, 1, 63, 64, 1000, 1 << 20] {
            let mut buffer = Buffer::new(length);
            assert_eq!(buffer.bytes_mut().len(), length);
            assert_eq!(buffer.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
        }
    }
}
