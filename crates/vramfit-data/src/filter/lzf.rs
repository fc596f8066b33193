//! LZF, h5py's own fast compression: literals, and repetitions of what came up to 8 KiB before.

use super::DecodeError;

/// Decompresses and returns how many bytes were made.
pub(super) fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let cut = || "its lzf stream is truncated".to_owned();
    let (mut from, mut to) = (0, 0);
    while let Some(&control) = input.get(from) {
        from += 1;
        let control = usize::from(control);
        if control < 32 {
            let length = control + 1;
            let literal = input.get(from..from + length).ok_or_else(cut)?;
            let place = out.get_mut(to..to + length).ok_or_else(too_long)?;
            place.copy_from_slice(literal);
            from += length;
            to += length;
            continue;
        }
        let mut length = (control >> 5) + 2;
        if length == 9 {
            length += usize::from(*input.get(from).ok_or_else(cut)?);
            from += 1;
        }
        let low = usize::from(*input.get(from).ok_or_else(cut)?);
        from += 1;
        let back = ((control & 31) << 8 | low) + 1;
        let start = to.checked_sub(back);
        let start =
            start.ok_or_else(|| "its lzf stream refers to data before its start".to_owned())?;
        if to + length > out.len() {
            return Err(too_long());
        }
        if back >= length {
            out.copy_within(start..start + length, to);
        } else {
            // It repeats what it is just making.
            for at in 0..length {
                out[to + at] = out[start + at];
            }
        }
        to += length;
    }
    Ok(to)
}

fn too_long() -> DecodeError {
    DecodeError::damaged("its lzf stream decodes to too many bytes")
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn literals_and_repetitions() {
        let mut out = [0; 12];
        // `ab`, then four bytes from two before, then nine and more.
        assert_eq!(decode(&[1, b'a', b'b', 2 << 5, 1], &mut out), Ok(6));
        assert_eq!(&out[..6], b"ababab");
        assert_eq!(decode(&[0, b'x', 7 << 5, 2, 0], &mut out), Ok(12));
        assert_eq!(&out, b"xxxxxxxxxxxx");
    }

    #[test]
    fn damaged_streams_are_refused() {
        let mut out = [0; 4];
        for input in [&[5, 1][..], &[1 << 5, 0], &[0, 1, 7 << 5], &[0, 1, 7 << 5, 9, 0], &[31]] {
            assert!(decode(input, &mut out).is_err(), "{input:?}");
        }
    }
}
