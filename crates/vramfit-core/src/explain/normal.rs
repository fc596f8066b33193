//! The normalized form of bytes: lower case, no white space, no control characters, no colors.

use memchr::memchr2;

/// What replaces each byte; 0 where it is left out.
const NORMALIZED: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = b'!' as usize;
    while byte < 256 {
        table[byte] = (byte as u8).to_ascii_lowercase();
        byte += 1;
    }
    table[0x7f] = 0;
    table
};

/// Appends the normalized form of a line.
pub(super) fn append_normalized(raw: &[u8], text: &mut Vec<u8>) {
    if memchr2(0x1b, 0xc2, raw).is_some() {
        each_kept(raw, |_, byte| {
            text.push(byte);
            true
        });
        return;
    }
    let begin = text.len();
    text.resize(begin + raw.len(), 0);
    let mut end = begin;
    for &byte in raw {
        let normalized = NORMALIZED[usize::from(byte)];
        text[end] = normalized;
        end += usize::from(normalized != 0);
    }
    text.truncate(end);
}

/// Calls `visit` with the position and the normalized form of every byte that is kept, until it says stop.
fn each_kept(raw: &[u8], mut visit: impl FnMut(usize, u8) -> bool) {
    let mut at = 0;
    while at < raw.len() {
        if raw[at] == 0x1b {
            at += escape_sequence(&raw[at..]);
            continue;
        }
        // A space that does not break.
        if raw[at] == 0xc2 && raw.get(at + 1) == Some(&0xa0) {
            at += 2;
            continue;
        }
        let normalized = NORMALIZED[usize::from(raw[at])];
        if normalized != 0 && !visit(at, normalized) {
            return;
        }
        at += 1;
    }
}

/// Returns the length of the escape sequence of a terminal at the beginning.
pub(super) fn escape_sequence(raw: &[u8]) -> usize {
    match raw.get(1) {
        Some(b'[') => {
            let end = raw[2..]
                .iter()
                .position(|byte| (0x40..=0x7e).contains(byte));
            end.map_or(2, |end| end + 3)
        }
        Some(b']') => {
            let end = raw[2..].iter().position(|byte| *byte == 0x07);
            end.map_or(2, |end| end + 3)
        }
        _ => 1,
    }
}

/// Returns where the byte is that becomes the `index`-th of the normalized form.
pub(super) fn raw_position(raw: &[u8], index: usize) -> usize {
    let mut position = raw.len();
    let mut left = index;
    each_kept(raw, |at, _| {
        if left == 0 {
            position = at;
            return false;
        }
        left -= 1;
        true
    });
    position
}
