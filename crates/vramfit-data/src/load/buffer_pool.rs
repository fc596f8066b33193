//! Memory for batches: allocated once and recycled.

/// A boundary that lets JAX use the memory in place, and that vector instructions like.
const ALIGNMENT: usize = 64;

/// As many bytes as take much longer to make than a thread takes to wake.
const WAKE_BYTES: usize = 512 << 10;

/// What fills recycled memory in a test that looks for code that still reads it.
const POISON: u8 = 0xa5;

/// Aligned memory of one column of a batch.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { bytes, start, length }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// Returns the bytes to write to. Moving the buffer does not move them.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// The buffers of one loader, in sets of one per column: as many as are of use, and more where the consumer keeps
/// batches, but never more than the budget allows.
#[derive(Debug)]
pub(super) struct BufferPool {
    /// Bytes of each column of a batch.
    lengths: Vec<usize>,
    free: Vec<Vec<Buffer>>,
    allocated: Vec<usize>,
    capacity: usize,
    max_capacity: usize,
    poison: bool,
}

impl BufferPool {
    /// Makes a pool of at most `capacity` sets, which may grow to `max_capacity`.
    pub(super) fn new(
        lengths: Vec<usize>,
        capacity: usize,
        max_capacity: usize,
        poison: bool,
    ) -> Self {
        let columns = lengths.len();
        BufferPool {
            lengths,
            free: (0..columns).map(|_| Vec::new()).collect(),
            allocated: vec![0; columns],
            capacity,
            max_capacity: max_capacity.max(capacity),
            poison,
        }
    }

    pub(super) fn set_capacity(&mut self, capacity: usize, max_capacity: usize) {
        (self.capacity, self.max_capacity) = (capacity, max_capacity.max(capacity));
    }

    /// Doubles the capacity as far as the budget allows, and returns whether it grew.
    pub(super) fn grow(&mut self) -> bool {
        let before = self.capacity;
        self.capacity = before.saturating_mul(2).min(self.max_capacity);
        self.capacity > before
    }

    /// Returns how many bytes a set of buffers of such lengths takes.
    pub(super) fn set_bytes(lengths: &[usize]) -> u64 {
        let each = size_of::<Buffer>() + ALIGNMENT;
        lengths.iter().map(|length| (length + each) as u64).sum()
    }

    pub(super) fn has_free_set(&self) -> bool {
        self.free_sets() > 0
    }

    /// Returns how many whole batches there are buffers for.
    pub(super) fn free_sets(&self) -> usize {
        (self.free.iter().zip(&self.allocated))
            .map(|(free, allocated)| free.len() + self.capacity.saturating_sub(*allocated))
            .min()
            .unwrap_or(0)
    }

    /// Returns how many batches are worth waking the consumer for; of large ones each is.
    pub(super) fn wake_threshold(&self) -> usize {
        let bytes: usize = self.lengths.iter().sum();
        (WAKE_BYTES / bytes.max(1)).clamp(1, (self.capacity / 4).max(1))
    }

    /// Returns how many batches a task makes: half of what the consumer is woken for, so that it has the others while
    /// these are made.
    pub(super) fn batches_per_task(&self) -> usize {
        (self.wake_threshold() / 2).max(1)
    }

    /// Takes a set of buffers, one per column, if one is free.
    pub(super) fn acquire(&mut self) -> Option<Vec<Buffer>> {
        if !self.has_free_set() {
            return None;
        }
        let buffers = (0..self.lengths.len()).map(|column| {
            self.free[column].pop().unwrap_or_else(|| {
                self.allocated[column] += 1;
                Buffer::new(self.lengths[column])
            })
        });
        Some(buffers.collect())
    }

    /// Takes back the buffer of a column.
    pub(super) fn recycle(&mut self, column: usize, mut buffer: Buffer) {
        if self.poison {
            buffer.bytes_mut().fill(POISON);
        }
        self.free[column].push(buffer);
    }

    /// Takes back a set of buffers.
    pub(super) fn recycle_set(&mut self, buffers: Vec<Buffer>) {
        for (column, buffer) in buffers.into_iter().enumerate() {
            self.recycle(column, buffer);
        }
    }

    /// Returns the bytes of all buffers, and of those that are in use.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let (mut all, mut in_use) = (0, 0);
        for column in 0..self.lengths.len() {
            let length = (self.lengths[column] + ALIGNMENT) as u64;
            all += length * self.allocated[column] as u64;
            in_use += length * (self.allocated[column] - self.free[column].len()) as u64;
        }
        (all, in_use)
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

    #[test]
    fn a_pool_has_its_capacity_and_grows_to_its_maximum() {
        let mut pool = BufferPool::new(vec![8, 100], 2, 3, true);
        let sets: Vec<_> = std::iter::from_fn(|| pool.acquire()).collect();
        assert_eq!(sets.len(), 2);
        assert!(pool.grow());
        assert!(!pool.grow());
        assert_eq!(pool.free_sets(), 1);
        sets.into_iter().for_each(|set| pool.recycle_set(set));
        assert_eq!(pool.free_sets(), 3);
        let set = pool.acquire().unwrap();
        assert!(set[1].bytes().iter().all(|byte| *byte == POISON));
        assert_eq!(pool.bytes().1, (8 + 100 + 2 * ALIGNMENT) as u64);
    }
}
