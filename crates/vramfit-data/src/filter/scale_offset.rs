//! Scale-offset of integers: what is stored is how far each is above the smallest, in as few bits as
//! the largest needs.

use super::{DecodeError, bit_reader::BitReader, byte_reader::ByteReader};

/// What the filter's parameters say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScaleOffset {
    /// Elements in a chunk, and the size of each in bytes.
    count: usize,
    size: usize,
    big_endian: bool,
    /// What elements that were never written are; they have a code of their own.
    fill: Option<u64>,
}

/// How the smallest number and the number of bits come before the packed bits.
const HEADER: usize = 21;

impl ScaleOffset {
    /// Understands the parameters; `None` where they are not those of integers.
    pub(super) fn new(parameters: &[u32]) -> Option<ScaleOffset> {
        let &[scale_type, _, count, class, size, _, order, has_fill, ..] = parameters else {
            return None;
        };
        let size = size as usize;
        if scale_type != 2 || class != 0 || !matches!(size, 1 | 2 | 4 | 8) {
            return None;
        }
        let fill = match has_fill {
            0 => None,
            _ => {
                let low = u64::from(*parameters.get(8)?);
                let high = u64::from(parameters.get(9).copied().unwrap_or(0));
                Some(low | high << 32)
            }
        };
        Some(ScaleOffset { count: count as usize, size, big_endian: order == 1, fill })
    }

    /// Unpacks the numbers and returns how many bytes were made.
    pub(super) fn decode(&self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let length = self.count.checked_mul(self.size);
        let Some(out) = length.and_then(|length| out.get_mut(..length)) else {
            return Err(DecodeError::damaged(format!(
                "its header gives {} elements, which is too many",
                self.count
            )));
        };
        let mut frame = ByteReader::new(input);
        let bits = frame.le_u32()?;
        let width = usize::from(frame.byte()?);
        if width > 8 {
            return Err(DecodeError::damaged(format!("its minimum has {width} bytes")));
        }
        let smallest = frame.le_u64()?;
        let all = self.size as u32 * 8;
        if bits > all {
            return Err(DecodeError::damaged(format!(
                "its values have {bits} bits, but the datatype has {all}"
            )));
        }
        let packed = input.get(HEADER..).ok_or_else(|| "it has no values".to_owned())?;
        if bits == all {
            // Nothing could be saved: the elements as they are, but in the order of the machine, as HDF5 has them while
            // the filter runs (H5Zscaleoffset.c).
            let whole = packed.get(..out.len()).ok_or_else(|| "it is truncated".to_owned())?;
            out.copy_from_slice(whole);
            if self.big_endian {
                out.chunks_exact_mut(self.size).for_each(<[u8]>::reverse);
            }
            return Ok(out.len());
        }
        if packed.len() < (self.count * bits as usize).div_ceil(8) {
            return Err(DecodeError::damaged("it is truncated"));
        }
        // The largest code stands for what was never written.
        let missing = (1_u64 << bits) - 1;
        let mut reader = BitReader::new(packed);
        for element in out.chunks_exact_mut(self.size) {
            let code = reader.take(bits);
            let value = match self.fill {
                Some(fill) if code == missing && bits > 0 => fill,
                _ => smallest.wrapping_add(code),
            };
            element.copy_from_slice(&value.to_le_bytes()[..self.size]);
            if self.big_endian {
                element.reverse();
            }
        }
        Ok(out.len())
    }
}
