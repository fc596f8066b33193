//! Bitshuffle: the first bits of all elements, then the second bits, and so on; by itself, or each
//! block compressed with LZ4 or Zstandard.
//!
//! Elements are taken in blocks of a multiple of eight. Those behind the last multiple of eight are
//! left as they are.

use super::byte_reader::ByteReader;
use super::byte_unshuffle::{assemble, of_size};
use super::{DecodeError, frame_output, grow_to, lz4, zstd};

/// Bytes that go through the steps of unshuffling together, where elements are not large: they stay in the processor's
/// first cache.
const BLOCK_BYTES: usize = 8 << 10;

/// What is done to a block after its bits are shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Lz4,
    Zstd,
}

/// Undoes it and returns how many bytes were made. `block` is the number of elements in a block,
/// or zero for what the plugin chooses by itself.
pub(super) fn decode(
    input: &[u8],
    out: &mut [u8],
    size: usize,
    block: usize,
    codec: Codec,
    unpacker: &mut zstd::ZstdDecoder,
    planes: &mut Vec<u8>,
) -> Result<usize, DecodeError> {
    let mut frame = ByteReader::new(input);
    let (length, block) = match codec {
        Codec::None => (input.len(), block),
        _ => {
            let length = usize::try_from(frame.be_u64()?).unwrap_or(usize::MAX);
            (length, frame.be_u32()? as usize / size)
        }
    };
    let out = frame_output(out, length)?;
    let block = match block {
        0 => default_block(size),
        block => block,
    };
    if block % 8 != 0 {
        return Err(DecodeError::damaged(format!(
            "its block size of {block} elements is not a multiple of 8"
        )));
    }
    let count = length / size;
    let mut done = 0;
    while count - done >= 8 {
        let elements = block.min((count - done) / 8 * 8);
        let place = &mut out[done * size..(done + elements) * size];
        match codec {
            Codec::None => unshuffle(frame.take(place.len())?, place, size),
            _ => {
                let compressed = frame.be_u32()? as usize;
                let bytes = frame.take(compressed)?;
                let planes = grow_to(planes, place.len());
                if codec == Codec::Lz4 {
                    lz4::raw(bytes, planes)?;
                } else if unpacker.decode(bytes, planes)? != planes.len() {
                    return Err(DecodeError::damaged("a zstd block decodes to too few bytes"));
                }
                unshuffle(planes, place, size);
            }
        }
        done += elements;
    }
    let rest = &mut out[done * size..];
    rest.copy_from_slice(frame.take(rest.len())?);
    Ok(length)
}

/// What the plugin takes: about 8 KiB of elements, and at least 128 of them.
fn default_block(size: usize) -> usize {
    (8192 / size / 8 * 8).max(128)
}

/// Puts the bits of elements together again. `input` has, for each byte of an element and each bit of
/// it, one bit of every element.
///
/// It takes three steps, each of which vector instructions are good at: bytes that have one bit each of the same eight
/// elements are brought together, their bits are exchanged, and the bytes of each element are brought together.
pub(super) fn unshuffle(input: &[u8], out: &mut [u8], size: usize) {
    let plane = input.len() / size / 8;
    let together = (BLOCK_BYTES / 8 / size).clamp(1, plane.max(1));
    let mut bytes = vec![0; together * 8 * size];
    for first in (0..plane).step_by(together) {
        let groups = together.min(plane - first);
        let bytes = &mut bytes[..groups * 8 * size];
        for (byte, bytes) in bytes.chunks_exact_mut(groups * 8).enumerate() {
            let bits =
                std::array::from_fn(|bit| &input[(byte * 8 + bit) * plane + first..][..groups]);
            assemble::<8>(bits, bytes);
            for eight in bytes.as_chunks_mut::<8>().0 {
                *eight = transpose(u64::from_le_bytes(*eight)).to_le_bytes();
            }
        }
        of_size(bytes, &mut out[first * 8 * size..][..bytes.len()], size);
    }
}

/// Transposes eight bytes as a matrix of eight by eight bits (Hacker's Delight, 7-3).
fn transpose(mut x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    x ^= t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    x ^= t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bits as the definition says where they go.
    fn shuffle(input: &[u8], size: usize) -> Vec<u8> {
        let count = input.len() / size;
        let mut out = vec![0; input.len()];
        for element in 0..count {
            for bit in 0..8 * size {
                let value = input[element * size + bit / 8] >> (bit % 8) & 1;
                out[bit * (count / 8) + element / 8] |= value << (element % 8);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn bits_come_back(
            size in prop_oneof![1_usize..10, Just(16)],
            bytes in prop::collection::vec(any::<u8>(), 0..20_000),
        ) {
            let bytes = &bytes[..bytes.len() / (8 * size) * 8 * size];
            let mut out = vec![0; bytes.len()];
            unshuffle(&shuffle(bytes, size), &mut out, size);
            prop_assert_eq!(out, bytes);
        }
    }
}
