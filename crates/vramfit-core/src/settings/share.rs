//! The part of a card that the pool may take, as the text that JAX reads.

use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};

/// How much of a card the pool may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// A part of the card's total memory.
    Fraction(f64),
    /// At most so many bytes of a card of that size. JAX has no such setting: it becomes the
    /// fraction of the card that comes nearest from below.
    Limit {
        /// What the pool may take.
        limit_bytes: u64,
        /// What the card has.
        total_bytes: u64,
    },
}

/// Returns the text of a fraction that makes sense.
pub(super) fn check_fraction(part: f64, unified: bool) -> Result<String> {
    let refuse = |hint: &str| {
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{part} is not a part of a card's memory"),
        )
        .hint(hint))
    };
    if !part.is_finite() || part <= 0.0 {
        return refuse("write a number above 0 and up to 1, such as `0.9`");
    }
    if part > 1.0 && !unified {
        return refuse(if (2.0..=100.0).contains(&part) {
            "write 90 percent as `0.9`; more than the card needs `TF_FORCE_UNIFIED_MEMORY=1`"
        } else {
            "more than the card needs `TF_FORCE_UNIFIED_MEMORY=1`"
        });
    }
    Ok(part.to_string())
}

/// Returns the largest fraction whose pool, as XLA computes it, is not larger than the limit.
pub(super) fn part_for(limit_bytes: u64, total_bytes: u64) -> Result<f32> {
    if limit_bytes == 0 || limit_bytes > total_bytes {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "a limit of {} cannot be had on a card of {}",
                Bytes(limit_bytes),
                Bytes(total_bytes)
            ),
        )
        .hint(format!("give at most {total_bytes} bytes")));
    }
    // XLA multiplies in 64 bits the 32-bit number it was handed, and cuts the product.
    let pool = |part: f32| (total_bytes as f64 * f64::from(part)) as u64;
    let mut part = (limit_bytes as f64 / total_bytes as f64) as f32;
    while pool(part) > limit_bytes {
        part = part.next_down();
    }
    while pool(part.next_up()) <= limit_bytes {
        part = part.next_up();
    }
    Ok(part)
}

/// Returns a text that Python reads as a number which becomes exactly this one in 32 bits.
pub(super) fn shortest(part: f32) -> String {
    let short = part.to_string();
    // Python reads 64 bits first, and rounding twice is not rounding once.
    if short.parse::<f64>().is_ok_and(|read| read as f32 == part) {
        short
    } else {
        f64::from(part).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_exceeded_and_hardly_missed() {
        for total in [
            10_468_982_784_u64,
            25_414_860_800,
            84_942_979_072,
            191_514_411_008,
        ] {
            for limit in [
                1 << 20,
                1 << 30,
                8 << 30,
                8_589_934_593,
                total / 3,
                total - 1,
                total,
            ] {
                let text = shortest(part_for(limit, total).unwrap());
                // As JAX and XLA go on: Python's 64 bits, the C API's 32, and 64 again.
                let part = text.parse::<f64>().unwrap() as f32;
                let pool = (total as f64 * f64::from(part)) as u64;
                assert!(pool <= limit, "{limit} of {total}: {pool}");
                let next = (total as f64 * f64::from(part.next_up())) as u64;
                assert!(next > limit, "{limit} of {total}: {next} would fit too");
            }
        }
    }
}
