//! A stretch of a log in normalized form: without white space, line breaks, colors and prefixes, in lower case.
//!
//! A message then reads the same however it was wrapped, indented, colored or relayed. Line feeds are left
//! where a line certainly begins a record of its own, so that figures of two lines never run together.

use memchr::memchr2;

use super::cause::Evidence;
use super::line_prefix::{self, LinePrefix};
use super::normal::{append_normalized, raw_position};
use super::quote::{meaningful_start, printable};

/// A longer line is cut into pieces, so that a log without line feeds takes neither more memory nor more time:
/// a place in a piece is searched for from its beginning.
const MAX_PIECE_BYTES: usize = 8 << 10;

/// What ends a piece of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// A line feed.
    Line,
    /// A carriage return, with which a progress bar writes over its line.
    Return,
    /// Nothing: the line is long.
    None,
}

/// Returns the length of the first piece, and what ends it.
fn next_piece(raw: &[u8]) -> (usize, Break) {
    let limit = raw.len().min(MAX_PIECE_BYTES);
    let Some(end) = memchr2(b'\n', b'\r', &raw[..limit]) else {
        return (limit, Break::None);
    };
    match (raw[end], raw.get(end + 1)) {
        (b'\r', Some(b'\n')) => (end + 2, Break::Line),
        (b'\r', _) => (end + 1, Break::Return),
        _ => (end + 1, Break::Line),
    }
}

/// The beginning of a line, or of a piece of a long one.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Where it begins in the log's own bytes.
    raw: usize,
    /// Where its text begins there, after the prefix.
    raw_text: usize,
    /// Where it begins in the normalized text.
    text: usize,
    /// Its number in the log, from 1.
    number: u64,
    writer: Option<u64>,
}

/// Where something is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the line, from 1.
    pub(super) line: u64,
    /// Which process wrote it, where a prefix says so.
    pub(super) writer: Option<u64>,
    /// The name of that process; only of a quotation.
    pub(super) writer_name: Option<String>,
    /// The line from there on, as it is in the log; of a quotation, from its meaningful beginning on.
    pub(super) text: String,
}

impl From<&Place> for Evidence {
    fn from(place: &Place) -> Self {
        Evidence {
            source: None,
            line: place.line,
            process: place.writer_name.clone(),
            text: place.text.clone(),
        }
    }
}

/// A stretch of a log.
#[derive(Debug, Default)]
pub(super) struct Block {
    raw: Vec<u8>,
    text: Vec<u8>,
    lines: Vec<Line>,
}

impl Block {
    /// Adds bytes of the log.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Returns how many bytes of the log it holds.
    pub(super) fn raw_len(&self) -> usize {
        self.raw.len()
    }

    /// Returns the normalized text.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns `true` if it ends with a complete line.
    pub(super) fn ends_line(&self) -> bool {
        self.raw.last().is_none_or(|byte| matches!(byte, b'\n' | b'\r'))
    }

    /// Normalizes what it holds. `first_line` is the number of its first line.
    pub(super) fn normalize(&mut self, first_line: u64) {
        self.text.clear();
        self.lines.clear();
        let mut number = first_line;
        let mut at = 0;
        let mut before = Break::Line;
        while at < self.raw.len() {
            let (piece, after) = next_piece(&self.raw[at..]);
            self.add_line(at, at + piece, number, before);
            number += u64::from(after == Break::Line);
            before = after;
            at += piece;
        }
    }

    fn add_line(&mut self, from: usize, to: usize, number: u64, before: Break) {
        let raw = &self.raw[from..to];
        let prefix = match before {
            Break::None => LinePrefix::default(),
            Break::Line | Break::Return => line_prefix::find(raw),
        };
        let is_blank = before == Break::Line && raw.trim_ascii().is_empty();
        let separates = prefix.begins_record || is_blank || before == Break::Return;
        if (separates || self.joins_figures(from, &raw[prefix.bytes..]))
            && self.text.last() != Some(&b'\n')
        {
            self.text.push(b'\n');
        }
        let same_line = self.lines.last().filter(|_| before != Break::Line);
        let writer = prefix.writer.or(same_line.and_then(|line| line.writer));
        self.lines.push(Line {
            raw: from,
            raw_text: from + prefix.bytes,
            text: self.text.len(),
            number,
            writer,
        });
        append_normalized(&raw[prefix.bytes..], &mut self.text);
    }

    /// Returns `true` if the end of the line before and the beginning of this one would make one figure of two:
    /// where both are digits, and that line is too short to have been wrapped.
    fn joins_figures(&self, from: usize, raw: &[u8]) -> bool {
        const MIN_WRAPPED_BYTES: usize = 40;
        let is_short = self.lines.last().is_some_and(|line| from - line.raw < MIN_WRAPPED_BYTES);
        let ends_in_digit = self.text.last().is_some_and(u8::is_ascii_digit);
        is_short && ends_in_digit && raw.trim_ascii_start().first().is_some_and(u8::is_ascii_digit)
    }

    /// Returns where the last line begins of which at least `lookahead` bytes follow; in normalized text, and
    /// in the log's own bytes. 0 where there is none.
    pub(super) fn last_line_before(&self, lookahead: usize) -> (usize, usize) {
        let limit = self.raw.len().saturating_sub(lookahead);
        let index = self.lines.partition_point(|line| line.raw <= limit);
        match index.checked_sub(1) {
            Some(index) => (self.lines[index].text, self.lines[index].raw),
            None => (0, 0),
        }
    }

    /// Returns where the line is in the normalized text that begins at a position of the log's own bytes.
    pub(super) fn text_position(&self, raw: usize) -> usize {
        let index = self.lines.partition_point(|line| line.raw < raw);
        self.lines.get(index).map_or(self.text.len(), |line| line.text)
    }

    /// Removes the bytes of the log before the line that `at`, a position in them, is in. Returns how many
    /// bytes and how many line feeds were removed.
    pub(super) fn drop_before(&mut self, at: usize) -> (usize, u64) {
        let index = self.lines.partition_point(|line| line.raw <= at);
        let line = self.lines[index.saturating_sub(1)];
        let lines = line.number - self.lines[0].number;
        self.raw.drain(..line.raw);
        (line.raw, lines)
    }

    /// Returns where a position of the normalized text is in the log.
    pub(super) fn place(&self, at: usize) -> Place {
        let (line, raw, begin) = self.locate(at);
        Place {
            line: line.number,
            writer: line.writer,
            writer_name: None,
            text: printable(&raw[begin..]),
        }
    }

    /// Returns where a position of the normalized text is in the log, with the line from where it begins to mean
    /// something: without a logger's source file, and without what stands far in front.
    pub(super) fn quote(&self, at: usize) -> Place {
        let (line, raw, begin) = self.locate(at);
        Place {
            line: line.number,
            writer: line.writer,
            writer_name: line.writer.and_then(|_| line_prefix::writer_name(&self.raw[line.raw..])),
            text: printable(&raw[meaningful_start(&raw[..begin])..]),
        }
    }

    /// Returns the number of the line that a position of the normalized text is in.
    pub(super) fn line_number(&self, at: usize) -> u64 {
        self.lines[self.line_index(at)].number
    }

    /// Returns where the line begins that a position of the normalized text is in.
    pub(super) fn line_start(&self, at: usize) -> usize {
        self.lines[self.line_index(at)].text
    }

    /// Returns `true` if a position is at the beginning of a word.
    pub(super) fn begins_word(&self, at: usize) -> bool {
        !self.byte_before(at).is_some_and(|byte| byte.is_ascii_alphanumeric())
    }

    /// Returns the byte of the log in front of a position, in the same line.
    pub(super) fn byte_before(&self, at: usize) -> Option<u8> {
        let (_, raw, begin) = self.locate(at);
        raw.get(begin.checked_sub(1)?).copied()
    }

    /// Returns the line that a position of the normalized text is in, its own bytes, and where in these the position is.
    fn locate(&self, at: usize) -> (Line, &[u8], usize) {
        let index = self.line_index(at);
        let line = self.lines[index];
        let raw = self.raw_text(index);
        (line, raw, raw_position(raw, at - line.text))
    }

    /// Returns a line's own bytes, without its prefix.
    fn raw_text(&self, index: usize) -> &[u8] {
        let next = self.lines.get(index + 1);
        let end = next.map_or(self.raw.len(), |next| next.raw);
        &self.raw[self.lines[index].raw_text..end]
    }

    /// Returns a range of the normalized text as it is in the log, in one line.
    pub(super) fn original(&self, from: usize, to: usize) -> String {
        let mut text = String::new();
        for index in self.line_index(from)..self.lines.len() {
            let line = self.lines[index];
            if line.text >= to {
                break;
            }
            let next = self.lines.get(index + 1);
            let text_end = next.map_or(self.text.len(), |next| next.text);
            let raw = self.raw_text(index);
            let begin = raw_position(raw, from.saturating_sub(line.text));
            let stop = match to < text_end {
                true => raw_position(raw, to - line.text),
                false => raw.len(),
            };
            text.push_str(&printable(&raw[begin..stop.max(begin)]));
        }
        text
    }

    fn line_index(&self, at: usize) -> usize {
        let index = self.lines.partition_point(|line| line.text <= at);
        index.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        let mut block = Block::default();
        block.push(text.as_bytes());
        block.normalize(1);
        block
    }

    fn position(block: &Block, of: &str) -> usize {
        let text = block.text();
        let found = text.windows(of.len()).position(|window| window == of.as_bytes());
        found.unwrap_or_else(|| panic!("{of} is not in {}", String::from_utf8_lossy(text)))
    }

    #[test]
    fn layout_makes_no_difference() {
        let plain = "ranoutofmemorytryingtoallocate1.97gib(roundedto2110783744)";
        for text in [
            "ran out of memory trying to allocate 1.97GiB (rounded to 2110783744)",
            "ran out of mem\nory trying to allocate 1.97GiB (rounded to 21107\n83744)",
            "  ran\tout of\u{a0}memory trying to\r\n allocate 1.97GiB (rounded to 2110783744)\r\n",
            "\u{1b}[31mran out of\u{1b}[0m memory trying to allocate 1.97GiB (rounded to 2110783744)",
            "> ran out of memory trying to allocate 1.97GiB\n> (rounded to 2110783744)",
        ] {
            let text = String::from_utf8(block(text).text().to_vec()).expect("ASCII");
            assert_eq!(text.trim_end(), plain);
        }
    }

    #[test]
    fn figures_of_two_records_do_not_run_together() {
        let block = block("of size 256 next 1\n2024-05-28 07:02:44.34: I a/b.cc:1] InUse");
        assert_eq!(block.text(), b"ofsize256next1\na/b.cc:1]inuse");
    }

    #[test]
    fn places_quote_the_line_from_there_on() {
        let block = block(
            "one\n\n 51%|███| 4/9 [10:20]W0623 18:20:12.602631 2860192 b.cc:5] Ran  out\nnext",
        );
        let place = block.place(position(&block, "ranout"));
        assert_eq!((place.line, place.text.as_str()), (3, "Ran  out"));
        let from = position(&block, "b.cc");
        assert_eq!(block.original(from, from + 13), "b.cc:5] Ran  out");
    }

    #[test]
    fn quotations_begin_where_the_line_means_something() {
        for (text, of, quoted) in [
            (
                "ZeroDivisionError: division by zero\n",
                "error:",
                "ZeroDivisionError: division by zero",
            ),
            (
                "[rank1] 2026-01-02 03:04:05.6: E a/b.cc:7] Run failed: Out of memory",
                "outof",
                "Run failed: Out of memory",
            ),
            (
                " 51%|███| 4/9 [10:20]W0623 18:20:12.602631 2860192 b.cc:5] Ran  out",
                "out",
                "Ran  out",
            ),
            ("a = 1] Ran out", "ran", "a = 1] Ran out"),
        ] {
            let block = block(text);
            assert_eq!(block.quote(position(&block, of)).text, quoted);
        }
        let long = format!("{} Ran out", "word ".repeat(100));
        let block = block(&long);
        let quoted = block.quote(position(&block, "ranout")).text;
        assert!(
            quoted.len() < 120 && quoted.starts_with("word") && quoted.ends_with("word  Ran out")
        );
    }

    #[test]
    fn a_range_over_several_lines_is_one_text() {
        let block = block("Operator: op_name=\"jit(step)/mul\nti\" source");
        let from = position(&block, "jit(step)");
        let to = position(&block, "\"source");
        assert_eq!(block.original(from, to), "jit(step)/multi");
    }

    #[test]
    fn processes_are_told_apart() {
        let block = block("[0] first\n[1] second");
        let writer = |of: &str| block.place(position(&block, of)).writer;
        assert!(writer("first").is_some());
        assert_ne!(writer("first"), writer("second"));
    }

    #[test]
    fn a_line_without_end_is_cut_into_pieces() {
        let block = block(&"x".repeat(3 * MAX_PIECE_BYTES));
        assert_eq!(block.text().len(), 3 * MAX_PIECE_BYTES);
        let (text, raw) = block.last_line_before(MAX_PIECE_BYTES);
        assert_eq!((text, raw), (2 * MAX_PIECE_BYTES, 2 * MAX_PIECE_BYTES));
        assert_eq!(block.place(text).line, 1);
    }
}
