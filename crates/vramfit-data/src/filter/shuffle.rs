//! Shuffle: the first bytes of all elements, then the second bytes, and so on.

use super::DecodeError;
use super::byte_unshuffle::of_size;

/// Puts the elements together again and returns how many bytes were made.
///
/// What is left over behind the last whole element was not shuffled.
pub(super) fn decode(input: &[u8], out: &mut [u8], size: usize) -> Result<usize, DecodeError> {
    let length = input.len();
    let Some(out) = out.get_mut(..length) else {
        return Err(DecodeError::damaged(format!(
            "{length} bytes were shuffled, expected {}",
            out.len()
        )));
    };
    let count = length / size;
    let (planes, rest) = input.split_at(count * size);
    let (whole, tail) = out.split_at_mut(count * size);
    of_size(planes, whole, size);
    tail.copy_from_slice(rest);
    Ok(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The filter as its definition says it.
    fn encode(input: &[u8], size: usize) -> Vec<u8> {
        let count = input.len() / size;
        let mut out: Vec<u8> = (0..size)
            .flat_map(|at| (0..count).map(move |element| (at, element)))
            .map(|(at, element)| input[element * size + at])
            .collect();
        out.extend(&input[count * size..]);
        out
    }

    proptest! {
        #[test]
        fn elements_come_back(
            input in prop::collection::vec(any::<u8>(), 0..2000), size in 1_usize..20,
        ) {
            let mut out = vec![0; input.len()];
            prop_assert_eq!(decode(&encode(&input, size), &mut out, size), Ok(input.len()));
            prop_assert_eq!(out, input);
        }
    }
}
