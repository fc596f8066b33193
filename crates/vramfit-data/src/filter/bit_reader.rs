//! Numbers of a few bits each, as the filters of HDF5 itself pack them.

/// Numbers of a few bits, the highest first, one behind the other.
pub(super) struct BitReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    held: u128,
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes: bytes.iter(), held: 0, count: 0 }
    }

    /// Returns the next number, of at most 64 bits; zeros follow the last byte.
    pub(super) fn take(&mut self, bits: u32) -> u64 {
        while self.count < bits {
            let byte = self.bytes.next().copied().unwrap_or(0);
            self.held = self.held << 8 | u128::from(byte);
            self.count += 8;
        }
        self.count -= bits;
        let number = self.held >> self.count;
        self.held &= (1 << self.count) - 1;
        number as u64
    }
}
