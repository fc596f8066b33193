//! Putting the bytes of elements together, sixteen elements at a time.
//!
//! The compiler makes vector instructions of the plain loop for elements of two bytes, and poor ones for longer
//! elements, so these are written down: each step joins vectors half of the list apart, byte by byte,
//! and after log2 of the size the vectors hold whole elements.

/// Bytes of a vector.
const LANES: usize = 16;

/// Fills `out` with elements of `size` bytes, whose first bytes stand first in `planes`, then all second bytes, and so on.
pub(super) fn of_size(planes: &[u8], out: &mut [u8], size: usize) {
    match size {
        1 => out.copy_from_slice(planes),
        2 => interleave::<2>(planes, out),
        4 => interleave::<4>(planes, out),
        8 => interleave::<8>(planes, out),
        16 => interleave::<16>(planes, out),
        _ => {
            let count = planes.len() / size;
            for (at, plane) in planes.chunks_exact(count.max(1)).enumerate() {
                for (element, byte) in out.chunks_exact_mut(size).zip(plane) {
                    element[at] = *byte;
                }
            }
        }
    }
}

/// Fills `out` with elements of `SIZE` bytes, a power of two, whose first bytes stand first in `planes`, then all
/// second bytes, and so on.
fn interleave<const SIZE: usize>(planes: &[u8], out: &mut [u8]) {
    let count = planes.len() / SIZE;
    assemble::<SIZE>(std::array::from_fn(|at| &planes[at * count..(at + 1) * count]), out);
}

/// The same with planes that lie anywhere, all of one length.
pub(super) fn assemble<const SIZE: usize>(plane: [&[u8]; SIZE], out: &mut [u8]) {
    let done = by_vectors::<SIZE>(plane, out);
    by_bytes::<SIZE>(plane, out, done);
}

/// Does so one by one for the elements from `first` on.
fn by_bytes<const SIZE: usize>(plane: [&[u8]; SIZE], out: &mut [u8], first: usize) {
    let (elements, _) = out.as_chunks_mut::<SIZE>();
    for (index, element) in elements.iter_mut().enumerate().skip(first) {
        *element = std::array::from_fn(|at| plane[at][index]);
    }
}

/// Does so for as many elements as fill vectors, and returns how many those are.
#[cfg(target_arch = "x86_64")]
fn by_vectors<const SIZE: usize>(plane: [&[u8]; SIZE], out: &mut [u8]) -> usize {
    #[allow(unsafe_code, reason = "the compiler wants to be told what the processor has")]
    // SAFETY: every processor of this architecture has SSE2.
    unsafe {
        sse2::interleave::<SIZE>(plane, out)
    }
}

/// Other processors do all one by one.
#[cfg(not(target_arch = "x86_64"))]
fn by_vectors<const SIZE: usize>(_: [&[u8]; SIZE], _: &mut [u8]) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi8, _mm_unpackhi_epi64,
        _mm_unpacklo_epi8,
    };

    use super::LANES;

    #[target_feature(enable = "sse2")]
    pub(super) fn interleave<const SIZE: usize>(plane: [&[u8]; SIZE], out: &mut [u8]) -> usize {
        let plane = plane.map(|bytes| bytes.as_chunks::<LANES>().0);
        let (out, _) = out.as_chunks_mut::<LANES>();
        let groups = plane[0].len();
        for (group, out) in out.chunks_exact_mut(SIZE).enumerate().take(groups) {
            let mut vectors: [__m128i; SIZE] = std::array::from_fn(|at| load(&plane[at][group]));
            let mut joined = 1;
            while joined < SIZE {
                let before = vectors;
                for pair in 0..SIZE / 2 {
                    let (one, other) = (before[pair], before[pair + SIZE / 2]);
                    vectors[2 * pair] = _mm_unpacklo_epi8(one, other);
                    vectors[2 * pair + 1] = _mm_unpackhi_epi8(one, other);
                }
                joined *= 2;
            }
            for (vector, out) in vectors.iter().zip(out) {
                store(*vector, out);
            }
        }
        groups * LANES
    }

    /// One instruction, after the compiler.
    #[target_feature(enable = "sse2")]
    fn load(bytes: &[u8; LANES]) -> __m128i {
        let number = u128::from_le_bytes(*bytes);
        _mm_set_epi64x((number >> 64) as i64, number as i64)
    }

    /// The same.
    #[target_feature(enable = "sse2")]
    fn store(vector: __m128i, out: &mut [u8; LANES]) {
        let low = _mm_cvtsi128_si64(vector) as u64;
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(vector, vector)) as u64;
        *out = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_as_plain<const SIZE: usize>() {
        for count in (0..70).chain([255, 256, 257, 1000]) {
            let planes: Vec<u8> = (0..count * SIZE).map(|at| ((at * 37) >> 3) as u8).collect();
            let mut out = vec![0; planes.len()];
            interleave::<SIZE>(&planes, &mut out);
            for (index, element) in out.chunks(SIZE).enumerate() {
                for (at, byte) in element.iter().enumerate() {
                    assert_eq!(*byte, planes[at * count + index], "{count} of {SIZE}");
                }
            }
        }
    }

    #[test]
    fn elements_of_every_size_and_count_are_as_the_plain_way_makes_them() {
        is_as_plain::<2>();
        is_as_plain::<4>();
        is_as_plain::<8>();
        is_as_plain::<16>();
    }
}
