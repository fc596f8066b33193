//! The checksum of HDF5's newer structures: Bob Jenkins's `lookup3` hash, from a seed of zero.

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    // The last 1 to 12 bytes are mixed differently, also where they are twelve.
    let whole = bytes.len().saturating_sub(1) / 12 * 12;
    let (blocks, rest) = bytes.split_at(whole);
    for block in blocks.chunks_exact(12) {
        a = a.wrapping_add(word(block, 0));
        b = b.wrapping_add(word(block, 4));
        c = c.wrapping_add(word(block, 8));
        // After six steps each number is in its place again.
        for bits in [4, 6, 8, 16, 19, 4] {
            let mixed = a.wrapping_sub(c) ^ c.rotate_left(bits);
            (a, b, c) = (b, c.wrapping_add(b), mixed);
        }
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest, 0));
    b = b.wrapping_add(word(rest, 4));
    c = c.wrapping_add(word(rest, 8));
    for bits in [14, 11, 25, 16, 4, 14, 24] {
        let mixed = (c ^ b).wrapping_sub(b.rotate_left(bits));
        (a, b, c) = (b, mixed, a);
    }
    b
}

/// Returns four bytes as a number; those behind the end count as zero.
fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::checksum;

    /// The values of the hash's own documentation, `driver5` of `lookup3.c`, with seed zero.
    #[test]
    fn known_values() {
        assert_eq!(checksum(b""), 0xdead_beef);
        assert_eq!(checksum(b"Four score and seven years ago"), 0x1777_0551);
    }
}
