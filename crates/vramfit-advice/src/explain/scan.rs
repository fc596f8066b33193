//! Reads a log of any size in bounded memory.

use super::block::Block;
use super::log::Log;
use super::message::Message;
use super::patterns::{MAX_MESSAGE_BYTES, PatternSet};

/// How much of the log is searched at once.
const BLOCK_BYTES: usize = 1 << 20;
/// What follows the beginning of a message before it is read: the message, and the prefixes of its lines.
const LOOKAHEAD_BYTES: usize = 4 * MAX_MESSAGE_BYTES;
/// What stays in front of the next message: messages are also told by what stands before them.
const LOOKBEHIND_BYTES: usize = 4 << 10;

/// Reads the bytes of one log, in pieces of any size, and collects what it says.
///
/// ```
/// use vramfit_advice::explain::LogScanner;
///
/// let mut scanner = LogScanner::new("run.log");
/// scanner.push(b"Allocator (GPU_0_bfc) ran out of memory trying to allo");
/// scanner.push(b"cate 1.97GiB (rounded to 2110783744)requested by op\n");
/// assert!(scanner.finish().has_memory_failure());
/// ```
#[derive(Debug)]
pub struct LogScanner {
    log: Log,
    block: Block,
    /// Number of the first line that the block holds.
    first_line: u64,
    /// How many bytes of the block were searched before.
    searched: usize,
}

impl LogScanner {
    /// Begins a log. `source` names it in the evidence; empty where there is only one.
    pub fn new(source: impl Into<String>) -> Self {
        LogScanner {
            log: Log::new(source.into()),
            block: Block::default(),
            first_line: 1,
            searched: 0,
        }
    }

    /// Adds the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (BLOCK_BYTES - self.block.raw_len().min(BLOCK_BYTES)).max(1);
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.block.push(now);
            bytes = rest;
            if self.block.raw_len() >= BLOCK_BYTES {
                self.search(false);
            }
        }
    }

    /// Ends the log.
    pub fn finish(mut self) -> Log {
        self.search(true);
        self.log.finish();
        self.log
    }

    fn search(&mut self, is_end: bool) {
        self.block.normalize(self.first_line);
        let from = self.block.text_position(self.searched);
        let (to, raw_to) = match is_end {
            true => (self.block.text().len(), self.block.raw_len()),
            false => self.block.last_line_before(LOOKAHEAD_BYTES),
        };
        let cut = is_end.then(|| cut_message(&self.block)).flatten().filter(|cut| *cut >= from);
        let to = cut.unwrap_or(to);
        let log = &mut self.log;
        let block = &self.block;
        PatternSet::get().each_message(block, from, to, |message, at| log.add(message, block, at));
        if is_end {
            if let Some(cut) = cut {
                self.log.add(Message::CutOff, &self.block, cut);
            }
            return;
        }
        let (bytes, lines) = self.block.drop_before(raw_to.saturating_sub(LOOKBEHIND_BYTES));
        self.searched = raw_to - bytes;
        self.first_line += lines;
    }
}

/// Returns where a message about a failed request begins that the end of the log cuts off: within its words, or within its
/// size, of which the rest may be missing.
fn cut_message(block: &Block) -> Option<usize> {
    /// What stands in front of the words, and the words.
    const MESSAGES: [(&[u8], &[u8]); 3] = [
        (b"_bfc)", b"ranoutofmemorytryingtoallocate"),
        (b"exhausted:", b"outofmemorywhiletryingtoallocate"),
        (b"exhausted:", b"failedtoallocaterequestfor"),
    ];
    const MIN_BYTES: usize = 5;
    if block.ends_line() {
        return None;
    }
    let is_figure = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let figure = block.text().iter().rev().take_while(is_figure).count();
    let (words, figure) = block.text().split_at(block.text().len() - figure);
    MESSAGES.iter().find_map(|(before, message)| {
        let longest = match figure.is_empty() {
            true => message.len(),
            // The size is behind all of the words.
            false => return words.ends_with(message).then(|| words.len() - message.len()),
        };
        let lengths = (MIN_BYTES..=longest).rev();
        let length = lengths.into_iter().find(|length| words.ends_with(&message[..*length]))?;
        words[..words.len() - length].ends_with(before).then(|| words.len() - length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::{CauseId, Confidence, explain_text};

    #[test]
    fn a_log_may_end_inside_of_the_message() {
        const REFUSED: &str = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 8.00GiB (rounded to 8589934592)";
        const STATUS: &str =
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.";
        for (message, from, whole) in [
            (REFUSED, REFUSED.find("of memory").unwrap(), REFUSED.find("GiB").unwrap()),
            (STATUS, STATUS.find("memory").unwrap(), STATUS.find("bytes").unwrap()),
        ] {
            for length in from..=message.len() {
                let explanation = explain_text(&format!("step 1 loss 0.3\n{}", &message[..length]));
                let cause = &explanation.causes[0];
                let is_cut = cause.summary.contains("cut off");
                assert_eq!(is_cut, length <= whole, "{}", &message[..length]);
                assert_eq!(cause.id, CauseId::PoolTooSmall, "{}", &message[..length]);
                assert_eq!(explanation.figures.requested_bytes.is_none(), is_cut);
                assert!(!is_cut || cause.confidence == Confidence::Possible);
            }
        }
        let of_others = [
            "RuntimeError: CUDA error: out of memory",
            "srun: error: task 0: Out Of Memory",
            "step 12",
        ];
        for log in of_others {
            let mut scanner = LogScanner::new("");
            scanner.push(log.as_bytes());
            assert!(!scanner.finish().has(|message| *message == Message::CutOff), "{log}");
        }
    }
}
