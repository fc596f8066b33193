//! The checksum of HDF5's metadata: `hashlittle` of Bob Jenkins's lookup3, from 0.

/// Returns the checksum of `bytes`.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let mut state = [start; 3];
    // The last twelve bytes or fewer are stirred in another way, also when they are exactly twelve.
    let full = bytes.len().saturating_sub(1) / 12;
    let (blocks, rest) = bytes.split_at(full * 12);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        stir(&mut state);
    }
    if rest.is_empty() {
        return state[2];
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    add(&mut state, &last);
    finish(state)
}

fn add(state: &mut [u32; 3], block: &[u8]) {
    for (word, bytes) in state.iter_mut().zip(block.chunks_exact(4)) {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        *word = word.wrapping_add(u32::from_le_bytes(bytes));
    }
}

fn stir([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: u32, turn: u32| {
        *x = x.wrapping_sub(*y) ^ y.rotate_left(turn);
        *y = y.wrapping_add(z);
    };
    step(a, c, *b, 4);
    step(b, a, *c, 6);
    step(c, b, *a, 8);
    step(a, c, *b, 16);
    step(b, a, *c, 19);
    step(c, b, *a, 4);
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    let step = |x: &mut u32, y: u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_author() {
        // From the self-test in lookup3.c.
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
