//! The unit of a BFC pool: sizes and addresses are multiples of it.

/// Sizes are multiples of this, and so are addresses.
pub(super) const UNIT: u64 = 256;

/// Rounds up to a multiple of 256; `None` beyond 64 bits.
pub fn round_up(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(UNIT)
}
