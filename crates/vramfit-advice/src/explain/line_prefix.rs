//! What loggers, launchers, containers and mail put in front of a line.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::normal::escape_sequence;

/// What stands in front of the text of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinePrefix {
    pub(super) bytes: usize,
    /// Whether the line begins a record of its own, and so does not continue the line before it.
    pub(super) begins_record: bool,
    /// Which process or container wrote the line, where the prefix says so: a hash of that name.
    pub(super) writer: Option<u64>,
    /// Where that name is in the line: its beginning and its end.
    writer_at: Option<(usize, usize)>,
}

/// Returns the name of the process or container that wrote a line, without the signs around it.
pub(super) fn writer_name(line: &[u8]) -> Option<String> {
    let (from, to) = find(line).writer_at?;
    let tags = ["<stderr>", "<stdout>"];
    let name = String::from_utf8_lossy(&line[from..to]).into_owned();
    let name = tags.iter().fold(name, |name, tag| name.replace(tag, ""));
    let is_sign = |letter: char| matches!(letter, '[' | ']' | '(' | ')' | ':' | '|' | ' ');
    Some(name.trim_matches(is_sign).to_owned())
}

/// Prefixes that may follow each other, such as those of a container, a launcher and a logger.
const MAX_ELEMENTS: usize = 8;
/// The longest name of a process or container that is taken for one.
const MAX_NAME_BYTES: usize = 48;

pub(super) fn find(line: &[u8]) -> LinePrefix {
    let mut prefix = LinePrefix::default();
    for _ in 0..MAX_ELEMENTS {
        let spaces = line[prefix.bytes..].iter();
        prefix.bytes += spaces.take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let rest = &line[prefix.bytes..];
        let Some(element) = Element::find(rest) else {
            break;
        };
        prefix.bytes += element.bytes;
        prefix.begins_record |= element.begins_record;
        if element.is_writer {
            prefix.writer = Some(hash(&rest[..element.bytes]));
            prefix.writer_at = Some((prefix.bytes - element.bytes, prefix.bytes));
        }
    }
    // XLA's log lines are recognized by the source file after the prefix, also without a date.
    prefix.begins_record |= begins_with_source_file(&line[prefix.bytes..]);
    prefix
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    name.hash(&mut hasher);
    hasher.finish()
}

/// One part of a prefix.
struct Element {
    bytes: usize,
    begins_record: bool,
    is_writer: bool,
}

impl Element {
    fn find(rest: &[u8]) -> Option<Element> {
        let record = |bytes| Element { bytes, begins_record: true, is_writer: false };
        let writer = |bytes| Element { bytes, begins_record: true, is_writer: true };
        match *rest.first()? {
            // Colors.
            0x1b => Some(Element {
                bytes: escape_sequence(rest),
                begins_record: false,
                is_writer: false,
            }),
            // A quotation mark of mail and Markdown stands before wrapped lines, too.
            b'>' => Some(Element { bytes: 1, begins_record: false, is_writer: false }),
            b'[' => bracket(rest)
                .map(|(bytes, names)| if names { writer(bytes) } else { record(bytes) }),
            b'(' => ray_worker(rest).map(writer),
            b'0'..=b'9' => {
                date(rest).or_else(|| clock(rest)).map(record).or_else(|| rank(rest).map(writer))
            }
            b'W' | b'I' | b'E' | b'F' => {
                severity(rest).map(record).or_else(|| name(rest).map(writer))
            }
            b'A'..=b'Z' => syslog(rest).map(record).or_else(|| name(rest).map(writer)),
            b'a'..=b'z' => stream(rest).map(record).or_else(|| name(rest).map(writer)),
            _ => None,
        }
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// `[3]`, `[rank3]:`, `[1,0]<stderr>:`, `[default0]:`, `[2026-08-08 10:00:00]`; says whether it names a
/// writer.
fn bracket(rest: &[u8]) -> Option<(usize, bool)> {
    let end = rest.iter().take(MAX_NAME_BYTES).position(|byte| *byte == b']')?;
    let inside = &rest[1..end];
    let mut bytes = end + 1;
    if date(inside).or_else(|| clock(inside)).is_some() {
        return Some((bytes, false));
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b',' | b'-' | b'_');
    let names_a_number = inside.iter().any(u8::is_ascii_digit);
    if !names_a_number || !inside.iter().all(is_name) {
        return None;
    }
    for tag in [&b"<stderr>"[..], b"<stdout>"] {
        bytes += if rest[bytes..].starts_with(tag) { tag.len() } else { 0 };
    }
    bytes += usize::from(rest.get(bytes) == Some(&b':'));
    // `[0:1]` of an array, or a list, is text.
    let ends = matches!(rest.get(bytes), None | Some(b' ' | b'\t'));
    (ends || rest[bytes - 1] == b':').then_some((bytes, true))
}

/// `(Worker pid=123, ip=10.0.0.1)`
fn ray_worker(rest: &[u8]) -> Option<usize> {
    const MAX_BYTES: usize = 96;
    let end = rest.iter().take(MAX_BYTES).position(|byte| *byte == b')')?;
    let inside = &rest[1..end];
    inside.windows(4).any(|window| window == b"pid=").then_some(end + 1)
}

/// `2026-08-08 10:00:00.123456:`, `2026-08-08T10:00:00Z`
fn date(rest: &[u8]) -> Option<usize> {
    let is_date = rest.len() > 10
        && digits(rest) == 4
        && rest[4] == b'-'
        && digits(&rest[5..]) == 2
        && rest[7] == b'-'
        && digits(&rest[8..]) == 2;
    let separated = is_date && matches!(rest[10], b' ' | b'T');
    let time = separated.then(|| clock(&rest[11..])).flatten()?;
    Some(11 + time)
}

/// `10:00:00`, with a fraction, a zone and a colon where they are there.
fn clock(rest: &[u8]) -> Option<usize> {
    let is_time = rest.len() >= 8
        && digits(rest) == 2
        && rest[2] == b':'
        && digits(&rest[3..]) == 2
        && rest[5] == b':'
        && digits(&rest[6..]) == 2;
    let mut bytes = is_time.then_some(8)?;
    if matches!(rest.get(bytes), Some(b'.' | b',')) {
        bytes += 1 + digits(&rest[bytes + 1..]);
    }
    match rest.get(bytes) {
        Some(b'Z') => bytes += 1,
        Some(b'+' | b'-') => {
            bytes += 1;
            let zone = rest[bytes..].iter();
            bytes += zone.take_while(|byte| byte.is_ascii_digit() || **byte == b':').count();
        }
        _ => {}
    }
    bytes += usize::from(rest.get(bytes) == Some(&b':'));
    Some(bytes)
}

/// `3: `, as `srun --label` has it.
fn rank(rest: &[u8]) -> Option<usize> {
    let number = digits(rest);
    (number <= 5 && rest[number..].starts_with(b": ")).then_some(number + 2)
}

/// The beginning of a record of absl's or TSL's logger, up to the source file.
///
/// `W1120 14:57:52.501962    7285 `, `E0000 00:00:1747233742.522887 3766360 `, `W external/xla/…`
fn severity(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b' ') {
        return begins_with_source_file(&rest[2..]).then_some(2);
    }
    if digits(&rest[1..]) != 4 || rest.get(5) != Some(&b' ') {
        return None;
    }
    let is_time = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.');
    let time = rest[6..].iter().take_while(|byte| is_time(byte)).count();
    let mut bytes = 6 + time;
    let spaces = |text: &[u8]| text.iter().take_while(|byte| **byte == b' ').count();
    let gap = spaces(&rest[bytes..]);
    bytes += gap;
    let thread = digits(&rest[bytes..]);
    if thread > 0 && rest.get(bytes + thread) == Some(&b' ') {
        bytes += thread + 1;
    }
    (time >= 8 && gap > 0).then_some(bytes)
}

/// `external/xla/…/bfc_allocator.cc:501] `, `run_docker.py:247] `, `gpu17:15647:15647 [0] `
fn begins_with_source_file(rest: &[u8]) -> bool {
    const MAX_PATH_BYTES: usize = 160;
    let is_path = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'.' | b'-' | b':')
    };
    let path = rest.iter().take(MAX_PATH_BYTES).take_while(|byte| is_path(byte));
    let path = path.count();
    let has_line = path > 1 && rest[path - 1].is_ascii_digit() && rest[..path].contains(&b':');
    has_line && (rest[path..].starts_with(b"] ") || rest[path..].starts_with(b" ["))
}

/// `worker-0  | ` of Docker Compose.
fn name(rest: &[u8]) -> Option<usize> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let letters = rest.iter().take(MAX_NAME_BYTES).take_while(|byte| is_name(byte));
    let letters = letters.count();
    let gap = rest[letters..].iter().take_while(|byte| **byte == b' ').count();
    (gap > 0 && rest[letters + gap..].starts_with(b"| ")).then_some(letters + gap + 2)
}

/// `stderr F ` of a container runtime.
fn stream(rest: &[u8]) -> Option<usize> {
    const STREAMS: [&[u8]; 4] = [b"stderr F ", b"stdout F ", b"stderr P ", b"stdout P "];
    STREAMS.iter().find(|stream| rest.starts_with(stream)).map(|stream| stream.len())
}

/// `Nov 24 07:50:51 host process[123]: `
fn syslog(rest: &[u8]) -> Option<usize> {
    const MAX_BYTES: usize = 120;
    let is_date = rest.len() > 16
        && rest[1].is_ascii_lowercase()
        && rest[2].is_ascii_lowercase()
        && rest[3] == b' '
        && matches!(rest[4], b' ' | b'1'..=b'3')
        && rest[6] == b' ';
    let time = is_date.then(|| clock(&rest[7..])).flatten()?;
    let after = &rest[7 + time..];
    let host = after.iter().take(MAX_BYTES).position(|byte| *byte == b':')?;
    let words = after[..host].iter().filter(|byte| **byte == b' ').count();
    (words <= 2).then_some(7 + time + host + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_found_and_text_is_left() {
        for (line, text, record) in [
            (
                "2024-05-28 07:02:44.349554: W external/tsl/bfc.cc:482] Allo",
                "external/tsl/bfc.cc:482] Allo",
                true,
            ),
            (
                "W1120 14:57:52.501962    7285 bfc_allocator.cc:501] Allo",
                "bfc_allocator.cc:501] Allo",
                true,
            ),
            ("E0000 00:00:1747233742.522887 3766360 cuda_dnn.cc:5] x", "cuda_dnn.cc:5] x", true),
            ("[1] 2019-05-29 23:55:55.555823: E a/b.cc:1] x", "a/b.cc:1] x", true),
            ("[1,3]<stderr>:Allocator", "Allocator", true),
            ("[rank7]: Traceback", "Traceback", true),
            ("12: Traceback", "Traceback", true),
            ("worker-0  | Traceback", "Traceback", true),
            ("> > Traceback", "Traceback", false),
            ("2026-01-01T00:00:00.123456789Z stderr F Allocator", "Allocator", true),
            ("(train pid=71, ip=10.0.0.3) Allocator", "Allocator", true),
            ("Nov 24 07:50:51 node3 kernel: Out of memory", "Out of memory", true),
            ("[10:13:36 client.cc", "[10:13:36 client.cc", false),
            ("gpu-25:15647:15647 [0] NCCL WARN", "gpu-25:15647:15647 [0] NCCL WARN", true),
            ("   Limit:      100", "Limit:      100", false),
            ("[...]", "[...]", false),
            ("Size: 1.0KiB | Requested Size: 4B", "Size: 1.0KiB | Requested Size: 4B", false),
            ("InUse at 7f00 of size 256 next 1", "InUse at 7f00 of size 256 next 1", false),
            (
                "I0309 12:51:51.381056 140505975940928 run_docker.py:247] Size",
                "run_docker.py:247] Size",
                true,
            ),
        ] {
            let prefix = find(line.as_bytes());
            assert_eq!(&line[prefix.bytes..], text, "{line}");
            assert_eq!(prefix.begins_record, record, "{line}");
        }
    }

    #[test]
    fn writers_are_told_apart() {
        let writer = |line: &str| find(line.as_bytes()).writer;
        assert!(writer("[1] text").is_some());
        assert_ne!(writer("[1] text"), writer("[2] text"));
        assert_eq!(writer("[1] text"), writer("[1] more"));
        assert_eq!(writer("text"), None);
    }

    #[test]
    fn writers_are_named_without_signs() {
        for (line, name) in [
            ("[rank7]: Traceback", Some("rank7")),
            ("2026-01-02 03:04:05 [1,3]<stderr>:Allocator", Some("1,3")),
            ("12: Traceback", Some("12")),
            ("worker-0  | Traceback", Some("worker-0")),
            ("(train pid=71, ip=10.0.0.3) text", Some("train pid=71, ip=10.0.0.3")),
            ("text", None),
        ] {
            assert_eq!(writer_name(line.as_bytes()).as_deref(), name, "{line}");
        }
    }
}
