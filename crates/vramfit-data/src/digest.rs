//! A number that stands for bytes, so that they can be compared with others without keeping them.
//!
//! Made to notice accidents, not forgery: every step is a bijection, so a change of one word always changes
//! the result, and any other change goes unnoticed once in 2^64.

/// Odd numbers without pattern, one for each lane.
const FACTORS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0xd6e8_feb8_6659_fd93];

/// Returns the number that stands for these bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut lanes = FACTORS.map(|factor| factor ^ bytes.len() as u64);
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    // Four lanes do not wait for each other, so this is as fast as memory is.
    for block in blocks.iter().chain([&last]) {
        let (words, _) = block.as_chunks::<8>();
        for ((lane, word), factor) in lanes.iter_mut().zip(words).zip(FACTORS) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(factor).rotate_left(31);
        }
    }
    lanes.into_iter().fold(0, |all, lane| crate::splitmix::mix(all ^ lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_every_length_and_every_order_counts() {
        let bytes: Vec<u8> = (0..100).map(|at| (at * 7) as u8).collect();
        let whole = digest(&bytes);
        for at in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[at / 8] ^= 1 << (at % 8);
            assert_ne!(digest(&other), whole, "bit {at}");
        }
        let lengths: std::collections::HashSet<u64> =
            (0..200).map(|length| digest(&vec![0; length])).collect();
        assert_eq!(lengths.len(), 200);
        let mut swapped = bytes.clone();
        swapped.rotate_left(32);
        assert_ne!(digest(&swapped), whole);
    }
}
