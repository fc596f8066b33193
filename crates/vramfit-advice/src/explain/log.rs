//! What a log says, in order: the messages that were found in it, and what they add up to.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::ListedBuffer;
use super::block::{Block, Place};
use super::cause::Evidence;
use super::dump_line::{DumpLine, PoolStats};
use super::message::{LoggedProgramNeed, Message, StatName};
use super::pool_dump::{DumpBuilder, PoolDump};
use crate::allocator::{JaxVersion, PoolEnd};

/// Events of one kind that are kept; the first are those that a cause is found in.
const MAX_EVENTS_PER_KIND: usize = 48;
/// Programs whose compilations are counted.
const MAX_COMPILED_PROGRAMS: usize = 256;
/// Lines after the beginning of another phase that are taken to be of it.
const OTHER_PHASE_LINES: u64 = 12;
/// Buffers of programs that are kept.
const MAX_BUFFERS: usize = 64;
/// Dumps that are kept.
const MAX_DUMPS: usize = 4;
/// Processes whose dumps are put together at the same time.
const MAX_WRITERS: usize = 64;

/// A message, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// How many events were before it in the log, so that events can be ordered.
    pub(super) order: u64,
    pub(super) source: usize,
    /// Number of the line, from 1.
    pub(super) line: u64,
    pub(super) writer: Option<u64>,
    /// The name of that process.
    pub(super) process: Option<String>,
    /// The line as it is quoted.
    pub(super) text: String,
    pub(super) message: Message,
    /// How many steps the program had done, by the lines of progress before it.
    pub(super) steps_before: u64,
    /// How many lines of progress were before it.
    pub(super) step_lines_before: u64,
    /// Whether the program had just begun to save a checkpoint, to evaluate or the like.
    pub(super) in_other_phase: bool,
}

/// A message that occurs often is counted, with its first and its last line.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    pub(super) count: u64,
    pub(super) first: Option<Evidence>,
    /// The largest number that the messages have, where they have one.
    pub(super) number: u64,
}

/// Values of one statistic, in the order in which the log shows them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatSeries {
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) max: u64,
    /// How many values were larger than the one before.
    pub(super) rises: u64,
    /// How many were smaller.
    pub(super) falls: u64,
}

/// What was found in one or more logs.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(super) sources: Vec<String>,
    pub(super) events: Vec<Event>,
    kinds: FxHashMap<std::mem::Discriminant<Message>, usize>,
    next_order: u64,
    dumps: Vec<PoolDump>,
    open_dumps: FxHashMap<Option<u64>, DumpBuilder>,
    pub(super) buffers: Vec<ListedBuffer>,
    /// The line of the first buffer.
    pub(super) first_buffer: Option<Evidence>,
    pub(super) steps: Counter,
    /// The number of the last line of progress.
    pub(super) last_step_line: u64,
    /// The order and the number of the last line that says that the program has come to its end.
    pub(super) ended: Option<(u64, u64)>,
    /// Line of the last message about a checkpoint or an evaluation.
    other_phase_line: u64,
    /// The line of a progress bar that has come to its end; 0 once another is on its way.
    finished_bar_line: u64,
    pub(super) compilations: BTreeMap<String, Counter>,
    pub(super) stats: BTreeMap<StatName, StatSeries>,
}

impl Log {
    pub(super) fn new(source: String) -> Self {
        Log { sources: vec![source], ..Log::default() }
    }

    /// Returns `true` if a request for GPU memory failed in it.
    pub fn has_memory_failure(&self) -> bool {
        !self.requests().is_empty()
    }

    /// Returns the bytes that a program needs, where the log tells; 0 where not.
    pub fn program_bytes(&self) -> u64 {
        self.program_need().map_or(0, |(_, need)| need.total.bytes)
    }

    /// Adds another log, such as that of another process of the same job.
    pub fn append(&mut self, other: Log) {
        let sources = self.sources.len();
        self.sources.extend(other.sources);
        for mut event in other.events {
            event.source += sources;
            event.order += self.next_order;
            self.events.push(event);
        }
        self.next_order += other.next_order;
        let dumps =
            other.dumps.into_iter().map(|dump| PoolDump { source: dump.source + sources, ..dump });
        self.dumps.extend(dumps);
        self.dumps.truncate(2 * MAX_DUMPS);
        self.first_buffer = self.first_buffer.take().or(other.first_buffer);
        self.buffers.extend(other.buffers);
        self.buffers.truncate(2 * MAX_BUFFERS);
        if other.steps.count > self.steps.count {
            self.steps = other.steps;
        }
        for (program, counter) in other.compilations {
            let own = self.compilations.entry(program).or_default();
            if counter.count > own.count {
                *own = counter;
            }
        }
        for (name, series) in other.stats {
            self.stats.entry(name).or_insert(series);
        }
    }

    /// Adds a message of a log.
    pub(super) fn add(&mut self, message: Message, block: &Block, at: usize) {
        self.next_order += 1;
        match message {
            Message::Step { number, is_last } => {
                self.finished_bar_line = if is_last { block.line_number(at) } else { 0 };
                return self.count_step(number, block, at);
            }
            Message::Compilation { program } => return self.count_compilation(program, block, at),
            Message::MemoryStat { name, bytes } => self.add_stat(name, bytes),
            Message::PeakBuffer(buffer) => {
                if self.buffers.is_empty() {
                    self.first_buffer = Some(self.evidence(&block.quote(at)));
                }
                if self.buffers.len() < MAX_BUFFERS {
                    self.buffers.push(buffer);
                }
                return;
            }
            Message::OtherPhase => {
                self.other_phase_line = block.line_number(at);
                return;
            }
            Message::Dump(line) => return self.add_dump_line(line, block, at),
            Message::Ended => {
                self.ended = Some((self.next_order, block.line_number(at)));
                return;
            }
            _ => {}
        }
        let kept = self.kinds.entry(std::mem::discriminant(&message)).or_default();
        *kept += 1;
        if *kept > MAX_EVENTS_PER_KIND {
            return;
        }
        let place = block.quote(beginning(&message, block, at));
        if let Message::PoolRefusal { end, .. } = message {
            self.begin_dump(place.writer, end);
        }
        self.events.push(Event {
            order: self.next_order,
            source: 0,
            line: place.line,
            writer: place.writer,
            process: place.writer_name,
            text: place.text,
            message,
            step_lines_before: self.steps.count,
            in_other_phase: [self.other_phase_line, self.finished_bar_line]
                .iter()
                .any(|line| *line > 0 && place.line - line.min(&place.line) <= OTHER_PHASE_LINES),
            steps_before: self.steps.count.max(self.steps.number),
        });
    }

    /// Adds a message that is not from the text of a log.
    pub(super) fn push(&mut self, line: u64, text: String, message: Message) {
        self.next_order += 1;
        if let Message::PoolRefusal { end, .. } = message {
            self.begin_dump(None, end);
        }
        self.events.push(Event {
            order: self.next_order,
            source: 0,
            line,
            writer: None,
            process: None,
            text,
            message,
            steps_before: 0,
            step_lines_before: 0,
            in_other_phase: false,
        });
    }

    /// Adds a line of a dump that is not from the text of a log.
    pub(super) fn push_dump_line(&mut self, line: DumpLine) {
        self.open_dumps.entry(None).or_default().add(line, None);
    }

    /// Completes what waits for further lines.
    pub(super) fn finish(&mut self) {
        let mut open: Vec<DumpBuilder> = self.open_dumps.drain().map(|(_, open)| open).collect();
        open.sort_by_key(DumpBuilder::first_line);
        for dump in open {
            self.keep_dump(dump);
        }
    }

    fn keep_dump(&mut self, dump: DumpBuilder) {
        if let Some(dump) = dump.build().filter(|_| self.dumps.len() < MAX_DUMPS) {
            let is_of_cuda = self.has(|message| matches!(message, Message::AsyncRefusal { .. }))
                && !self.has(|message| matches!(message, Message::PoolRefusal { .. }));
            self.dumps.push(PoolDump { is_of_cuda, ..dump });
        }
    }

    fn begin_dump(&mut self, writer: Option<u64>, end: Option<PoolEnd>) {
        if self.open_dumps.len() >= MAX_WRITERS && !self.open_dumps.contains_key(&writer) {
            return;
        }
        let earlier = self.open_dumps.insert(writer, DumpBuilder::new(end));
        if let Some(earlier) = earlier {
            self.keep_dump(earlier);
        }
    }

    fn add_dump_line(&mut self, line: DumpLine, block: &Block, at: usize) {
        // A chunk's line is one of very many; its place is of no interest.
        let place = match line {
            DumpLine::Chunk(_) if self.open_dumps.len() == 1 => None,
            _ => Some(block.quote(at)),
        };
        let writer = match &place {
            Some(place) => place.writer,
            None => self.open_dumps.keys().next().copied().flatten(),
        };
        if matches!(line, DumpLine::Map { .. }) && !self.open_dumps.contains_key(&writer) {
            return;
        }
        if self.open_dumps.len() >= MAX_WRITERS && !self.open_dumps.contains_key(&writer) {
            return;
        }
        // A log may begin inside of a dump.
        let open = self.open_dumps.entry(writer).or_default();
        open.add(line, place.as_ref());
    }

    fn count_step(&mut self, number: u64, block: &Block, at: usize) {
        if self.steps.count == 0 {
            self.steps.first = Some(self.evidence(&block.quote(at)));
        }
        self.steps.count += 1;
        self.last_step_line = block.line_number(at);
        self.steps.number = self.steps.number.max(number);
    }

    fn count_compilation(&mut self, program: String, block: &Block, at: usize) {
        let is_known = self.compilations.contains_key(&program);
        if !is_known && self.compilations.len() >= MAX_COMPILED_PROGRAMS {
            return;
        }
        let first = (!is_known).then(|| self.evidence(&block.quote(at)));
        let counter = self.compilations.entry(program).or_default();
        counter.first = counter.first.take().or(first);
        counter.count += 1;
    }

    fn evidence(&self, place: &Place) -> Evidence {
        Evidence { source: self.source(0), ..Evidence::from(place) }
    }

    /// Returns the name of one of several logs.
    pub(super) fn source(&self, index: usize) -> Option<String> {
        let name = self.sources.get(index)?;
        (!name.is_empty()).then(|| name.clone())
    }

    fn add_stat(&mut self, name: StatName, bytes: u64) {
        let series = self.stats.entry(name).or_default();
        if series.count == 0 {
            series.first = bytes;
        } else if bytes > series.last {
            series.rises += 1;
        } else if bytes < series.last {
            series.falls += 1;
        }
        series.count += 1;
        series.last = bytes;
        series.max = series.max.max(bytes);
    }

    /// Returns the events in order, with their messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = (&Event, &Message)> {
        self.events.iter().map(|event| (event, &event.message))
    }

    /// Returns what a function returns of messages, if that is the same for all: of GPUs that differ nobody knows which
    /// one the program used.
    pub(super) fn find_same<T: PartialEq>(&self, of: impl Fn(&Message) -> Option<T>) -> Option<T> {
        let mut found = self.messages().filter_map(|(_, message)| of(message));
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }

    /// Returns the first event for which a function returns something.
    pub(super) fn find<T>(&self, of: impl Fn(&Message) -> Option<T>) -> Option<(&Event, T)> {
        self.events.iter().find_map(|event| Some((event, of(&event.message)?)))
    }

    /// Returns the first event of some kind.
    pub(super) fn first(&self, is: impl Fn(&Message) -> bool) -> Option<&Event> {
        self.events.iter().find(|event| is(&event.message))
    }

    /// Returns `true` if it has an event of some kind.
    pub(super) fn has(&self, is: impl Fn(&Message) -> bool) -> bool {
        self.first(is).is_some()
    }

    /// Returns all events of some kind.
    pub(super) fn all<'a>(
        &'a self,
        is: impl Fn(&Message) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Event> + 'a {
        self.events.iter().filter(move |event| is(&event.message))
    }

    /// Returns the dump that tells most of a pool, of the request that failed first.
    pub(super) fn dump(&self) -> Option<&PoolDump> {
        let complete = self.dumps.iter().find(|dump| dump.is_complete());
        complete.or_else(|| self.dumps.first())
    }

    /// Returns the statistics of the pool at the failure, as a dump shows them.
    pub(super) fn pool_stats(&self) -> Option<&PoolStats> {
        self.dumps.iter().find_map(|dump| dump.stats.as_ref())
    }

    /// Returns the first map of 100 characters.
    pub(super) fn map(&self) -> Option<&str> {
        self.dumps.iter().find_map(|dump| dump.map.as_deref())
    }

    /// Returns what the compiler says that a program needs, and where it says it.
    pub(super) fn program_need(&self) -> Option<(&Event, &LoggedProgramNeed)> {
        self.messages().find_map(|(event, message)| match message {
            Message::ProgramNeed(need) | Message::DumpedProgram { need } => Some((event, need)),
            _ => None,
        })
    }

    /// Returns the release of JAX that the log names.
    pub(super) fn jax(&self) -> Option<(&Event, JaxVersion)> {
        self.find(|message| match message {
            Message::Jax { version } => Some(*version),
            _ => None,
        })
    }

    /// Returns a statistic that the program has printed.
    pub(super) fn stat(&self, name: StatName) -> Option<StatSeries> {
        self.stats.get(&name).copied()
    }
}

/// Returns where a message begins that is found by a part of it.
fn beginning(message: &Message, block: &Block, at: usize) -> usize {
    const MAX_NAME_BYTES: usize = 64;
    let begins_with: &[u8] = match message {
        Message::PoolRefusal { .. } | Message::PoolWarning { .. } => b"allocator(",
        Message::Rematerialization { .. } => b"can",
        _ => return at,
    };
    let from = at.saturating_sub(MAX_NAME_BYTES);
    let before = &block.text()[from..at];
    memchr::memmem::rfind(before, begins_with).map_or(at, |found| from + found)
}
