//! How a line of a log is quoted.

use super::normal::escape_sequence;

/// Quoted text in front of a message; what stands further in front is another message in the same line.
const MAX_LEAD_BYTES: usize = 100;

/// Returns where a quotation begins, in what stands in its line in front of the message.
pub(super) fn meaningful_start(lead: &[u8]) -> usize {
    let from = lead.len().saturating_sub(MAX_LEAD_BYTES);
    let near = &lead[from..];
    if let Some(end) = after_source_file(near) {
        return from + end;
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace();
    match from {
        0 => 0,
        _ => from + near.iter().position(is_space).map_or(near.len(), |at| at + 1),
    }
}

/// Returns the end of the last `bfc_allocator.cc:501] `, which loggers put in front of their text.
fn after_source_file(text: &[u8]) -> Option<usize> {
    memchr::memmem::rfind_iter(text, b"] ")
        .find(|end| {
            let digits = text[..*end].iter().rev();
            let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
            let name = text[..end - digits].strip_suffix(b":");
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let suffix = name.and_then(|name| name.rsplit(|byte| !is_name(byte)).next());
            let is_file = suffix.is_some_and(|suffix| {
                matches!(suffix, b"cc" | b"py" | b"h" | b"cpp" | b"c" | b"cu")
            });
            digits > 0 && is_file
        })
        .map(|end| end + 2)
}

/// Returns text without what could control a terminal, cut to what a report can quote.
pub(super) fn printable(raw: &[u8]) -> String {
    const MAX_CHARACTERS: usize = 240;
    let mut kept = Vec::with_capacity(raw.len().min(4 * MAX_CHARACTERS));
    let mut at = 0;
    while at < raw.len() && kept.len() < 4 * MAX_CHARACTERS {
        match raw[at] {
            0x1b => {
                at += escape_sequence(&raw[at..]);
                continue;
            }
            b'\t' => kept.push(b' '),
            byte if byte < b' ' || byte == 0x7f => {}
            byte => kept.push(byte),
        }
        at += 1;
    }
    let text = String::from_utf8_lossy(&kept);
    text.trim_end().chars().take(MAX_CHARACTERS).collect()
}
