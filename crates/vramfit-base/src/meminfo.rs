//! What Linux says of the host's memory, in `/proc/meminfo`.

/// Returns the bytes that programs could be given without swapping (`MemAvailable`); `None` where the text does not say.
pub fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_available() {
        let text = "MemTotal:       24593488 kB\nMemAvailable:     1024 kB\n";
        assert_eq!(available_bytes(text), Some(1 << 20));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
    }
}
