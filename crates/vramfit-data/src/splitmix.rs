//! One way to make random-looking numbers of a few integers: no state, the same on every machine.
//!
//! The order of rows and the generated data draw from here. Both are promised to stay as they are, so
//! nothing in this file may ever change; its tests hold the values of the first release. It is a mixing
//! function for statistics, not for secrets.

/// An odd number without pattern, by which counters are spread: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes 64 bits so that every bit of the result depends on every bit of `x`: the finaliser of
/// SplitMix64, a bijection.
#[inline]
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A key made of several integers, in an order that matters: `(0, 1)` and `(1, 0)` are two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MixKey(u64);

impl MixKey {
    /// Makes a key of all parts.
    ///
    /// Each part is mixed before the next is added. Adding them up would make the second epoch of one
    /// seed the first epoch of the next seed, as some loaders do.
    pub(crate) fn new(parts: &[u64]) -> Self {
        let start = SPREAD ^ parts.len() as u64;
        MixKey(parts.iter().fold(start, |key, part| mix(mix(key ^ part).wrapping_add(SPREAD))))
    }

    /// Returns the number of this key at `counter`: SplitMix64, which can be entered anywhere.
    #[inline]
    pub(crate) fn at(self, counter: u64) -> u64 {
        mix(self.0.wrapping_add(counter.wrapping_mul(SPREAD)))
    }
}

/// Maps a random number onto `0..bound` by multiplication; the bias is below `bound / 2^64`.
#[inline]
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_first_release() {
        // The first numbers of SplitMix64 from seed 0, as its authors publish them.
        assert_eq!(mix(SPREAD), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(SPREAD.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
        let key = MixKey::new(&[1, 2, 3]);
        assert_eq!(key, MixKey(3_712_184_345_726_327_325));
        assert_eq!(key.at(0), 11_597_280_850_239_811_184);
        assert_eq!(key.at(1), 12_245_338_896_081_217_056);
    }

    #[test]
    fn keys_tell_their_parts_and_their_order_apart() {
        let keys = [
            MixKey::new(&[]),
            MixKey::new(&[0]),
            MixKey::new(&[0, 0]),
            MixKey::new(&[0, 1]),
            MixKey::new(&[1, 0]),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn a_flipped_bit_flips_half_of_the_result() {
        let mut flipped = [0_u32; 64];
        for x in 0..1000 {
            let key = MixKey::new(&[x]);
            for (bit, count) in flipped.iter_mut().enumerate() {
                *count += (key.at(7) ^ MixKey::new(&[x ^ (1 << bit)]).at(7)).count_ones();
            }
        }
        // 64 000 coins a bit: one standard deviation is 126.
        assert!(flipped.iter().all(|count| count.abs_diff(32_000) < 630), "{flipped:?}");
    }
}
