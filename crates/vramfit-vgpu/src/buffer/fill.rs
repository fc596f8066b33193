//! The values that unknown arrays read as.

use vramfit_model::run_config::Fill;

/// Writes the values that an unknown array of an element type reads as.
pub(crate) fn write_fill(fill: Fill, element: &str, bytes: &mut [u8]) {
    match fill {
        Fill::Zeros => bytes.fill(0),
        Fill::Ones => repeat(&one(element), bytes),
    }
}

/// Returns the bytes of the number 1.
fn one(element: &str) -> Vec<u8> {
    match element {
        "f32" => 1.0_f32.to_ne_bytes().to_vec(),
        "f64" => 1.0_f64.to_ne_bytes().to_vec(),
        "f16" => 0x3c00_u16.to_ne_bytes().to_vec(),
        "bf16" => 0x3f80_u16.to_ne_bytes().to_vec(),
        "c64" => [1.0_f32.to_ne_bytes(), [0; 4]].concat(),
        "c128" => [1.0_f64.to_ne_bytes(), [0; 8]].concat(),
        "s16" | "u16" => 1_u16.to_ne_bytes().to_vec(),
        "s32" | "u32" => 1_u32.to_ne_bytes().to_vec(),
        "s64" | "u64" => 1_u64.to_ne_bytes().to_vec(),
        _ => vec![1],
    }
}

/// Returns an element of an array as text; `None` for an element type that has no such form here.
pub(crate) fn number_of(element: &str, bytes: &[u8]) -> Option<String> {
    Some(match element {
        "f32" => f32::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "f64" => f64::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "s8" => i8::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "u8" => u8::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "s16" => i16::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "u16" => u16::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "s32" => i32::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "u32" => u32::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "s64" => i64::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        "u64" => u64::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        _ => return None,
    })
}

fn repeat(pattern: &[u8], bytes: &mut [u8]) {
    for (byte, value) in bytes.iter_mut().zip(pattern.iter().cycle()) {
        *byte = *value;
    }
}

/// Writes what an unknown array reads as that becomes a constant of a program: 0 and 1 in an order without a
/// pattern, the same in every run, another one for each address; the other way round where unknown values read as 1.
/// XLA folds what is the same everywhere, and merges constants that are equal: they would take less memory than theirs.
pub(crate) fn write_constant(fill: Fill, address: u64, element: &str, bytes: &mut [u8]) {
    let width = one(element).len();
    write_fill(Fill::Ones, element, bytes);
    // No address has these bits, so that it is never 0, which xorshift keeps.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ address;
    // xorshift64, of which one bit is used
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 63 == 0) == (fill == Fill::Zeros)
    };
    for element in bytes.chunks_exact_mut(width) {
        if next() {
            element.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_write_the_values_of_their_names() {
        let mut bytes = [9; 8];
        write_fill(Fill::Ones, "f32", &mut bytes);
        assert_eq!(bytes[..4], 1.0_f32.to_ne_bytes());
        write_fill(Fill::Zeros, "s8", &mut bytes);
        assert_eq!(bytes, [0; 8]);
    }

    #[test]
    fn constants_have_both_numbers_everywhere() {
        for element in ["f32", "bf16", "s8", "s64", "c128", "pred"] {
            let mut bytes = vec![9; 1 << 12];
            write_constant(Fill::Zeros, 256, element, &mut bytes);
            let mut others = vec![9; 1 << 12];
            write_constant(Fill::Ones, 256, element, &mut others);
            assert!(bytes != others, "{element}");
            let width = one(element).len();
            let ones = bytes.chunks_exact(width).filter(|it| *it == one(element)).count();
            let zeros =
                bytes.chunks_exact(width).filter(|it| it.iter().all(|byte| *byte == 0)).count();
            assert_eq!(ones + zeros, bytes.len() / width, "{element}");
            assert!(ones > zeros / 2 && zeros > ones / 2, "{element}: {ones} and {zeros}");
        }
    }

    #[test]
    fn constants_of_two_arrays_are_not_equal() {
        let constant = |address| {
            let mut bytes = vec![9; 1 << 12];
            write_constant(Fill::Zeros, address, "f32", &mut bytes);
            bytes
        };
        assert_eq!(constant(256), constant(256));
        let addresses: Vec<u64> = (0..64).map(|at| at * 256).collect();
        let distinct: std::collections::HashSet<_> = addresses.into_iter().map(constant).collect();
        assert_eq!(distinct.len(), 64);
    }
}
