//! The messages of XLA, CUDA, JAX and the tools around them, in the wordings of each version.
//!
//! A pattern is the beginning of a message in normalized form (see [`super::block`]); what follows is read by
//! its function, which returns nothing where the rest is something else. The wordings and the releases that
//! have them: the strings of released plugins, and openxla/xla.
//!
//! | file | messages of |
//! | --- | --- |
//! | `allocator.rs` | XLA's allocators: refused requests, planned pools |
//! | `dump.rs` | the dump of a BFC pool |
//! | `program.rs` | XLA about one compiled program: its buffers, rematerialization, autotuning |
//! | `driver.rs` | the CUDA driver, its installation, and the resources of a kernel |
//! | `libraries.rs` | cuBLAS, cuDNN, NCCL and the like |
//! | `pytorch.rs` | PyTorch's allocators |
//! | `frameworks.rs` | TensorFlow, CuPy and others in the same process |
//! | `host.rs` | the host: memory, addresses, other processes, TPUs |
//! | `client.rs` | JAX and Python: settings, versions, exceptions |
//! | `progress.rs` | the program's own progress: steps, other phases, its end |
//! | `start.rs` | how the program was started: its script, its arguments, its batch |

mod allocator;
mod client;
mod driver;
mod dump;
mod frameworks;
mod host;
mod libraries;
mod program;
mod progress;
mod pytorch;
mod start;

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::block::Block;
use super::message::Message;
use super::number::{Size, size};
use crate::gpu;

/// A message begins with this text.
pub(super) struct Pattern {
    text: &'static str,
    reading: Reading,
}

/// What a pattern means.
enum Reading {
    /// Always this message.
    Fixed(Message),
    /// What a function reads in the text around it.
    ByFunction(fn(&Match<'_>) -> Option<Message>),
}

impl Pattern {
    const fn new(text: &'static str, read: fn(&Match<'_>) -> Option<Message>) -> Self {
        let reading = Reading::ByFunction(read);
        Pattern { text, reading }
    }

    const fn fixed(text: &'static str, message: Message) -> Self {
        let reading = Reading::Fixed(message);
        Pattern { text, reading }
    }

    fn read(&self, at: &Match<'_>) -> Option<Message> {
        match &self.reading {
            Reading::Fixed(message) => Some(message.clone()),
            Reading::ByFunction(read) => read(at),
        }
    }
}

/// Where a pattern was found.
pub(super) struct Match<'a> {
    pub(super) block: &'a Block,
    /// Where it begins in the normalized text, and where it ends.
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The longest message, in normalized bytes: the statistics of a dump behind the prefix of each line.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 10;

impl<'a> Match<'a> {
    /// Returns the text that follows, over any number of lines.
    fn after(&self) -> &'a [u8] {
        self.after_up_to(MAX_MESSAGE_BYTES)
    }

    /// Returns up to this many bytes of the text that follows, over any number of lines.
    fn after_up_to(&self, bytes: usize) -> &'a [u8] {
        head(&self.block.text()[self.to..], bytes)
    }

    /// Returns the text that follows in the same record.
    fn record(&self) -> &'a [u8] {
        let after = self.after();
        &after[..memchr::memchr(b'\n', after).unwrap_or(after.len())]
    }

    /// Returns the pattern as it was found.
    fn pattern(&self) -> &'a [u8] {
        &self.block.text()[self.from..self.to]
    }

    /// Returns up to this many bytes of the text in front of it, in the same record.
    fn before(&self, bytes: usize) -> &'a [u8] {
        let text = self.before_in_log(bytes);
        &text[memchr::memrchr(b'\n', text).map_or(0, |at| at + 1)..]
    }

    /// Returns up to this many bytes of the text in front of it, over any number of lines.
    fn before_in_log(&self, bytes: usize) -> &'a [u8] {
        &self.block.text()[self.from.saturating_sub(bytes)..self.from]
    }

    /// Returns the line that it is in, as it is in the log.
    fn line(&self) -> String {
        self.block.place(self.block.line_start(self.from)).text
    }

    /// Returns text as it is in the log, where `part` is a part of what follows.
    fn original(&self, part: &[u8]) -> String {
        let offset = part.as_ptr().addr() - self.after().as_ptr().addr();
        let from = self.to + offset;
        self.block.original(from, from + part.len())
    }
}

/// Returns the text behind the first occurrence of a label.
fn after_label<'a>(text: &'a [u8], label: &str) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(text, label.as_bytes())?;
    Some(&text[at + label.len()..])
}

fn contains(text: &[u8], part: &str) -> bool {
    memchr::memmem::find(text, part.as_bytes()).is_some()
}

fn contains_any(text: &[u8], parts: &[&str]) -> bool {
    parts.iter().any(|part| contains(text, part))
}

/// Returns the text, cut to this many bytes.
fn head(text: &[u8], bytes: usize) -> &[u8] {
    &text[..text.len().min(bytes)]
}

/// Returns the size behind the first occurrence of a label.
fn labelled_size(text: &[u8], label: &str) -> Option<Size> {
    size(after_label(text, label)?).map(|(size, _)| size)
}

/// Returns the text up to one of these bytes.
fn until<'a>(text: &'a [u8], ends: &[u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| ends.contains(byte));
    &text[..end.unwrap_or(text.len())]
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// All patterns, ready to be searched for at once.
pub(super) struct PatternSet {
    automaton: AhoCorasick,
    patterns: Vec<&'static Pattern>,
    /// The names of GPUs, which follow the patterns.
    gpus: Vec<&'static str>,
}

impl PatternSet {
    pub(super) fn get() -> &'static PatternSet {
        static SET: OnceLock<PatternSet> = OnceLock::new();
        SET.get_or_init(PatternSet::build)
    }

    fn build() -> PatternSet {
        let groups = [
            allocator::PATTERNS,
            dump::PATTERNS,
            program::PATTERNS,
            driver::PATTERNS,
            libraries::PATTERNS,
            pytorch::PATTERNS,
            frameworks::PATTERNS,
            host::PATTERNS,
            client::PATTERNS,
            progress::PATTERNS,
            start::PATTERNS,
        ];
        let patterns: Vec<&Pattern> = groups.into_iter().flatten().collect();
        let names: Vec<(String, &'static str)> = gpu_names().collect();
        let texts = patterns.iter().map(|pattern| pattern.text.as_bytes());
        let texts = texts.chain(names.iter().map(|(text, _)| text.as_bytes()));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .expect("some hundred short patterns are within the limits");
        PatternSet { automaton, patterns, gpus: names.into_iter().map(|(_, name)| name).collect() }
    }

    /// Calls `found` with every message that begins in a range of the normalized text of a block.
    pub(super) fn each_message(
        &self,
        block: &Block,
        from: usize,
        to: usize,
        mut found: impl FnMut(Message, usize),
    ) {
        let text = block.text();
        let input = aho_corasick::Input::new(text).span(from..text.len());
        for found_at in self.automaton.find_iter(input) {
            if found_at.start() >= to {
                break;
            }
            let at = Match { block, from: found_at.start(), to: found_at.end() };
            let index = found_at.pattern().as_usize();
            let message = match self.patterns.get(index) {
                Some(pattern) => pattern.read(&at),
                // A slice that is not in the catalog begins with the name of its GPU.
                None if text[at.to..].starts_with(b"mig") => None,
                None => Some(Message::Gpu { name: self.gpus[index - self.patterns.len()] }),
            };
            if let Some(message) = message {
                found(message, at.from);
            }
        }
    }
}

/// Returns what drivers and people call each GPU, in normalized form, and its name in the catalog.
fn gpu_names() -> impl Iterator<Item = (String, &'static str)> {
    const MIN_NAME_BYTES: usize = 8;
    let names = gpu::all().iter().flat_map(|gpu| {
        let descriptions = std::iter::once(gpu.description.as_str());
        let names = descriptions.chain(gpu.aliases.iter().map(String::as_str));
        names.map(|name| (name, gpu.name.as_str()))
    });
    let normal = names.map(|(text, name)| {
        let kept = text.chars().filter(|letter| !letter.is_whitespace());
        (kept.collect::<String>().to_ascii_lowercase(), name)
    });
    // `orin` and `l4` are in many words, `teslat4` is in none.
    normal.filter(|(text, _)| text.len() >= MIN_NAME_BYTES || text.starts_with("tesla"))
}
