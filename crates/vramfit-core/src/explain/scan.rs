//! Reads a log of any size in bounded memory.

use super::block::Block;
use super::log::Log;
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
/// use vramfit_core::explain::LogScanner;
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
        let log = &mut self.log;
        let block = &self.block;
        PatternSet::get().each_message(block, from, to, |message, at| log.add(message, block, at));
        if is_end {
            return;
        }
        let (bytes, lines) = self.block.drop_before(raw_to.saturating_sub(LOOKBEHIND_BYTES));
        self.searched = raw_to - bytes;
        self.first_line += lines;
    }
}
