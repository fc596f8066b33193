//! The values that unknown arrays read as.

use vramfit_core::run_config::Fill;

/// Writes the values that an unknown array of an element type reads as.
pub(crate) fn write_fill(fill: Fill, element: &str, bytes: &mut [u8]) {
    let one: &[u8] = match element {
        "f32" => &1.0_f32.to_ne_bytes(),
        "f64" => &1.0_f64.to_ne_bytes(),
        "f16" => &0x3c00_u16.to_ne_bytes(),
        "bf16" => &0x3f80_u16.to_ne_bytes(),
        "c64" => &[0, 0, 0x80, 0x3f, 0, 0, 0, 0],
        "s16" | "u16" => &1_u16.to_ne_bytes(),
        "s32" | "u32" => &1_u32.to_ne_bytes(),
        "s64" | "u64" => &1_u64.to_ne_bytes(),
        _ => &[1],
    };
    match fill {
        Fill::Zeros => bytes.fill(0),
        Fill::Ones => repeat(one, bytes),
        Fill::Random => random(element, bytes),
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

/// SplitMix64: small, and the same everywhere.
fn random(element: &str, bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    match element {
        "f32" => {
            for chunk in bytes.chunks_exact_mut(4) {
                let value = (next() >> 40) as f32 / (1_u64 << 24) as f32;
                chunk.copy_from_slice(&value.to_ne_bytes());
            }
        }
        "bf16" => {
            for chunk in bytes.chunks_exact_mut(2) {
                let value = (next() >> 40) as f32 / (1_u64 << 24) as f32;
                chunk.copy_from_slice(&((value.to_bits() >> 16) as u16).to_ne_bytes());
            }
        }
        "f64" => {
            for chunk in bytes.chunks_exact_mut(8) {
                let value = (next() >> 11) as f64 / (1_u64 << 53) as f64;
                chunk.copy_from_slice(&value.to_ne_bytes());
            }
        }
        // Half precision and the 8-bit floats have no type in Rust; their exponent bits are kept
        // below one by taking small integers' patterns.
        "pred" => bytes.iter_mut().for_each(|byte| *byte = (next() & 1) as u8),
        _ => bytes.iter_mut().for_each(|byte| *byte = (next() & 0x3f) as u8),
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
        let (mut a, mut b) = ([0; 64], [0; 64]);
        write_fill(Fill::Random, "f32", &mut a);
        write_fill(Fill::Random, "f32", &mut b);
        assert_eq!(a, b, "the same in every run");
        let values: Vec<f32> =
            a.chunks_exact(4).map(|c| f32::from_ne_bytes([c[0], c[1], c[2], c[3]])).collect();
        assert!(values.iter().all(|value| (0.0..1.0).contains(value)));
        assert!(values[0] != values[1]);
    }
}
