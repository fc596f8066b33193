//! LZ4 as HDF5's plugin frames it: the length of all, the length of a block, and the blocks, each
//! with its compressed length. Numbers are big-endian.

use super::byte_reader::ByteReader;
use super::{DecodeError, frame_output};

/// Decompresses and returns how many bytes were made.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut frame = ByteReader::new(input);
    let length = usize::try_from(frame.be_u64()?).unwrap_or(usize::MAX);
    let out = frame_output(out, length)?;
    let block = (frame.be_u32()? as usize).min(length);
    if block == 0 && length > 0 {
        return Err(DecodeError::damaged("its block size is 0"));
    }
    for place in out.chunks_mut(block.max(1)) {
        let compressed = frame.be_u32()? as usize;
        let bytes = frame.take(compressed)?;
        // A block that was not made shorter was left as it is.
        match compressed == place.len() {
            true => place.copy_from_slice(bytes),
            false => raw(bytes, place)?,
        }
    }
    Ok(length)
}

/// Decompresses a block without a frame to exactly as many bytes as `out` has.
pub(super) fn raw(bytes: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let expected = out.len();
    match lz4_flex::block::decompress_into(bytes, out) {
        Ok(made) if made == expected => Ok(()),
        Ok(made) => Err(DecodeError::damaged(format!(
            "an lz4 block decodes to {made} bytes, expected {expected}"
        ))),
        Err(error) => Err(DecodeError::damaged(format!("an lz4 block is damaged: {error}"))),
    }
}
