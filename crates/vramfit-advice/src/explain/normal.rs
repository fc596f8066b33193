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
            let end = raw[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
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
    let skipped = match memchr2(0x1b, 0xc2, raw) {
        // Without sequences of several bytes, whole chunks are counted instead of looked at.
        None => skip_chunks(raw, index),
        Some(_) => (0, 0),
    };
    let (from, kept) = skipped;
    let mut position = raw.len();
    let mut left = index - kept;
    each_kept(&raw[from..], |at, _| {
        if left == 0 {
            position = from + at;
            return false;
        }
        left -= 1;
        true
    });
    position
}

/// Returns how many bytes may be skipped in search of the `index`-th kept one, and how many of them are kept.
fn skip_chunks(raw: &[u8], index: usize) -> (usize, usize) {
    const CHUNK_BYTES: usize = 64;
    let mut skipped = 0;
    let mut kept = 0;
    for chunk in raw.chunks_exact(CHUNK_BYTES) {
        let is_kept = |byte: &&u8| **byte > b' ' && **byte != 0x7f;
        let count = chunk.iter().filter(is_kept).count();
        if kept + count > index {
            break;
        }
        kept += count;
        skipped += CHUNK_BYTES;
    }
    (skipped, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_found_with_and_without_chunks() {
        let words = "some words, a\ttab and \x7f more; ".repeat(20);
        for text in [words.clone(), format!("{words}\x1b[31mred\u{a0}text\x1b[0m {words}")] {
            let mut kept = Vec::new();
            each_kept(text.as_bytes(), |at, _| {
                kept.push(at);
                true
            });
            for (index, at) in kept.iter().enumerate() {
                assert_eq!(raw_position(text.as_bytes(), index), *at);
            }
            assert_eq!(raw_position(text.as_bytes(), kept.len()), text.len());
        }
    }
}
