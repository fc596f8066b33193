//! The texts a JAX program sees when a request fails, in the words of each version.
//!
//! The dump that goes to the log is made elsewhere; this is the text of the exception.

use super::config::JaxVersion;

/// Shows a size as XLA's log lines do: `112B`, `24.6KiB`, `29.54MiB`, `1.97GiB`.
///
/// Other places of vramfit show sizes with [`crate::Bytes`]; this one is for texts that must equal
/// XLA's. It divides by whole 1024s first and so cuts where one would expect rounding.
pub fn human_readable_bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].iter();
    let mut unit = units.next();
    let mut value = bytes;
    while value >= 1 << 20 {
        value /= 1024;
        unit = units.next();
    }
    let unit = unit.expect("six units cover 64 bits: 2^64 divided by 1024^5 is below 2^20");
    let decimals = if *unit == "KiB" { 1 } else { 2 };
    format!("{:.decimals$}{unit}", value as f64 / 1024.0)
}

/// Returns the status text of a request that a pool (BFC, CUDA async) refused.
pub fn out_of_memory_text(bytes: u64, jax: JaxVersion) -> String {
    // Up to 0.4.35 plain, in 0.5.3 human-readable; the releases between were not examined.
    if jax < (0, 5, 0) {
        format!("Out of memory while trying to allocate {bytes} bytes.")
    } else {
        format!("Out of memory while trying to allocate {}.", human_readable_bytes(bytes))
    }
}

/// Returns the status text of a request that the driver refused directly.
pub(super) fn direct_out_of_memory_text(bytes: u64, ordinal: u32) -> String {
    format!(
        "Failed to allocate request for {} ({bytes}B) on device ordinal {ordinal}",
        human_readable_bytes(bytes)
    )
}

/// Returns the status text of a request beyond the budget of the virtual-memory allocator.
pub(super) fn over_budget_text(mapped: u64, rounded: u64, budget: u64, jax: JaxVersion) -> String {
    let (what, word) = if jax < (0, 11, 0) {
        ("Not enough PA budget for allocation", "rounded_size")
    } else {
        ("Not enough PA budget", "allocation_size")
    };
    format!("{what}: pa_allocated={mapped}B, {word}={rounded}B, pa_budget={budget}B")
}

/// The status text when the driver has no pages left, though the budget would allow them. The detail
/// that belongs before the colon is empty in XLA.
pub(super) const NO_PAGES_TEXT: &str = ": CUDA_ERROR_OUT_OF_MEMORY: out of memory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_look_as_in_xla_logs() {
        for (bytes, text) in [
            (0, "0B"),
            (112, "112B"),
            (1000, "1000B"),
            (1023, "1023B"),
            (1024, "1.0KiB"),
            // Ties go to the even digit, as in C's printf: 1.25 and 1.75.
            (1280, "1.2KiB"),
            (1792, "1.8KiB"),
            (307_200, "300.0KiB"),
            ((1 << 20) - 1, "1024.0KiB"),
            (1 << 20, "1.00MiB"),
            (30_974_935, "29.54MiB"),
            (2_110_783_744, "1.97GiB"),
            (1_065_446_072, "1016.09MiB"),
            (u64::MAX, "16.00EiB"),
        ] {
            assert_eq!(human_readable_bytes(bytes), text);
        }
    }

    #[test]
    fn plain_bytes_before_0_5() {
        let bytes = 2_110_783_616;
        assert_eq!(
            out_of_memory_text(bytes, (0, 4, 35)),
            "Out of memory while trying to allocate 2110783616 bytes."
        );
        assert_eq!(
            out_of_memory_text(bytes, (0, 5, 3)),
            "Out of memory while trying to allocate 1.97GiB."
        );
    }
}
