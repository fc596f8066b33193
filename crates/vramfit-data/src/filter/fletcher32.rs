//! Fletcher's checksum of 32 bits, behind the bytes of a chunk.

use super::DecodeError;

/// How many bytes the checksum takes.
pub(super) const LENGTH: usize = 4;

/// Verifies the checksum, passes the bytes on, and returns how many there are.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let Some((bytes, stored)) = input.split_last_chunk::<LENGTH>() else {
        return Err(DecodeError::damaged("it is too short for a checksum"));
    };
    let Some(out) = out.get_mut(..bytes.len()) else {
        return Err(DecodeError::damaged(format!(
            "it has {} bytes before the checksum, expected {}",
            bytes.len(),
            out.len()
        )));
    };
    let computed = checksum(bytes);
    let stored = u32::from_le_bytes(*stored);
    // HDF5 1.6.2 and before wrote both halves with their bytes swapped, and still reads it so.
    let swapped = (computed & 0x00ff_00ff) << 8 | (computed >> 8) & 0x00ff_00ff;
    if stored != computed && stored != swapped {
        return Err(DecodeError::damaged(format!(
            "its checksum is {stored:#010x}, expected {computed:#010x}"
        )));
    }
    out.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Sums of big-endian words of 16 bits, modulo 65535.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (0_u32, 0_u32);
    let (words, odd) = bytes.as_chunks::<2>();
    // So many words can be added before the second sum has no room.
    for words in words.chunks(360) {
        for word in words {
            low += u32::from(u16::from_be_bytes(*word));
            high += low;
        }
        low = fold(low);
        high = fold(high);
    }
    if let [last] = odd {
        low += u32::from(*last) << 8;
        high += low;
        low = fold(low);
        high = fold(high);
    }
    fold(high) << 16 | fold(low)
}

fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}
