//! Writes a trace while the run goes on, folding what repeats.
//!
//! A training run is one step, a million times. The writer notices when the coming events equal
//! those some distance back and from then on only counts; a `repeat` record is written when the
//! match ends. In that state an event costs one comparison, and the file does not grow.

mod skippable;

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::event::{Event, TextId};
use super::header::{Footer, Header};
use super::history::{History, KEPT_OF_REPEAT, relative, repeats};
use super::records::{invalid_input, put_footer, to_json, truncate};
use super::sequence_index::{SEQUENCE_LENGTH, SequenceIndex};
use super::wire::{self, Crc, tag};

/// Matches of fewer events than this are written out, which is as short.
const MIN_REPEAT: u64 = 2;
/// Bytes gathered before they are handed to the sink.
const CHUNK: usize = 64 << 10;

/// A match that is going on: the next event is compared with the one at `cursor`.
#[derive(Clone, Copy, Debug)]
struct Match {
    distance: u64,
    count: u64,
    cursor: u64,
}

/// Writes one trace.
///
/// Nothing is promised to be in the sink before [`Writer::flush`]. A writer that is dropped
/// flushes; one that dies with its process leaves a trace that ends after the last flush.
///
/// # Examples
/// ```
/// use vramfit_model::trace::{Event, Footer, Header, Writer};
///
/// let mut writer = Writer::new(std::io::sink(), &Header::default())?;
/// let site = writer.text("train.py:12 (main)");
/// writer.event(&Event::UnknownRead { site, bytes: 4 })?;
/// writer.finish(&Footer::default())?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Writer {
    sink: Box<dyn Write + Send>,
    out: Vec<u8>,
    crc: Crc,
    texts: FxHashMap<Box<str>, TextId>,
    history: History,
    sequences: SequenceIndex,
    open: Option<Match>,
    /// Events at the end of the history that are not in `out` yet; fewer than [`SEQUENCE_LENGTH`].
    pending: u64,
    allocations: u64,
    /// Something was written since the last checksum.
    dirty: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Finished,
    Broken(io::ErrorKind),
}

impl Writer {
    /// Begins a trace in `sink` and hands the header over at once.
    ///
    /// # Errors
    /// What the sink says, and [`io::ErrorKind::InvalidInput`] for a header over 16 MiB.
    pub fn new(sink: impl Write + Send + 'static, header: &Header) -> io::Result<Writer> {
        let mut writer = Writer {
            sink: Box::new(sink),
            out: Vec::with_capacity(CHUNK + CHUNK / 4),
            crc: Crc::new(),
            texts: FxHashMap::default(),
            history: History::default(),
            sequences: SequenceIndex::new(),
            open: None,
            pending: 0,
            allocations: 0,
            dirty: true,
            state: State::Open,
        };
        for part in [wire::MAGIC, wire::VERSION, b"\n", &to_json(header)?, b"\n"] {
            writer.out.extend_from_slice(part);
        }
        writer.flush()?;
        Ok(writer)
    }

    /// Returns the id of a text, the same for the same text; the empty text has id 0.
    ///
    /// A text over 4 MiB is cut there, so that the reader can bound its memory.
    pub fn text(&mut self, text: &str) -> TextId {
        if text.is_empty() {
            return TextId(0);
        }
        let text = truncate(text);
        if let Some(id) = self.texts.get(text) {
            return *id;
        }
        let id = TextId(self.texts.len() as u32 + 1);
        self.texts.insert(text.into(), id);
        if self.state == State::Open {
            // Events that use the id come later, so this may overtake those not yet written.
            wire::put_body(&mut self.out, tag::TEXT, text.as_bytes());
            self.dirty = true;
        }
        id
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when an allocation is freed that was never made, and what
    /// the sink says; after the sink failed once, every call fails and nothing is gathered.
    #[inline]
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Some(open) = &mut self.open {
            if repeats(event, self.history.event_at(open.cursor), self.allocations) {
                open.count += 1;
                open.cursor += 1;
                if open.cursor == self.history.len() {
                    open.cursor -= open.distance;
                }
                self.allocations += u64::from(matches!(event, Event::Allocate { .. }));
                return Ok(());
            }
            self.finish_repeat();
        }
        self.push_unmatched(event)
    }

    /// Hands everything over to the sink, an open match and a checksum included, and flushes it.
    ///
    /// Each call during a match adds about a dozen bytes, so call it by the clock or at rare
    /// events, not after each step.
    ///
    /// # Errors
    /// What the sink says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.ensure_open()?;
        if let Some(open) = self.finish_repeat() {
            // The same source, unless the history was cut between it and here.
            if open.distance <= open.count.min(KEPT_OF_REPEAT) || open.count <= KEPT_OF_REPEAT {
                let cursor = self.history.len() - open.distance;
                self.open = Some(Match { count: 0, cursor, ..open });
            }
        }
        while self.pending > 0 {
            self.put_oldest_pending();
        }
        if self.dirty {
            self.put_checksum();
            self.flush_chunk()?;
        }
        let flushed = self.sink.flush();
        self.track(flushed)
    }

    /// Ends the trace. Nothing can be added afterwards.
    ///
    /// # Errors
    /// What the sink says.
    pub fn finish(&mut self, footer: &Footer) -> io::Result<()> {
        self.flush()?;
        put_footer(&mut self.out, footer)?;
        self.put_checksum();
        self.flush_chunk()?;
        let flushed = self.sink.flush();
        self.track(flushed)?;
        self.state = State::Finished;
        self.open = None;
        Ok(())
    }

    /// Adds an event that does not continue a match.
    fn push_unmatched(&mut self, event: &Event) -> io::Result<()> {
        self.ensure_open()?;
        let Some(event) = relative(event, self.allocations) else {
            let what = "an event refers to an allocation that does not exist";
            return Err(invalid_input(what));
        };
        self.allocations += u64::from(matches!(event, Event::Allocate { .. }));
        self.history.push(event);
        self.pending += 1;
        if let Some(found) = self.sequences.register(&self.history, self.history.len()) {
            // The pending events are the beginning of the match.
            let distance = self.history.len() - found;
            let count = self.pending;
            self.history.truncate_by(count);
            self.pending = 0;
            let cursor = self.history.copy_source(distance, count);
            self.open = Some(Match { distance, count, cursor });
        } else if self.pending == SEQUENCE_LENGTH as u64 {
            self.put_oldest_pending();
            if self.out.len() >= CHUNK {
                return self.flush_chunk();
            }
        }
        Ok(())
    }

    /// Ends the open match, if there is one, and returns it.
    fn finish_repeat(&mut self) -> Option<Match> {
        let open = self.open.take()?;
        if open.count == 0 {
            return Some(open);
        }
        let start = self.history.len();
        if open.count < MIN_REPEAT {
            for index in 0..open.count {
                let source = self.history.copy_source(open.distance, index);
                wire::put_event(&mut self.out, self.history.event_at(source));
            }
        } else {
            self.out.push(tag::REPEAT);
            wire::put(&mut self.out, open.distance);
            wire::put(&mut self.out, open.count);
        }
        self.dirty = true;
        let kept = self.history.push_repeat(open.distance, open.count);
        // Rows further than one distance before the end are in the table or will be replaced by
        // their next occurrence; the first ones behind the start are new.
        let end = start + kept;
        let tail = start.max(end.saturating_sub(open.distance + SEQUENCE_LENGTH as u64));
        let head = tail.min(start + SEQUENCE_LENGTH as u64);
        // The row still holds the hashes of events that were taken back when the match began.
        let first = start.saturating_sub(SEQUENCE_LENGTH as u64);
        for position in self.history.oldest().max(first) + 1..=start {
            self.sequences.index_event(&self.history, position);
        }
        for position in (start + 1..=head).chain(tail.max(head) + 1..=end) {
            self.sequences.register(&self.history, position);
        }
        Some(open)
    }

    fn put_oldest_pending(&mut self) {
        let oldest = self.history.len() - self.pending;
        wire::put_event(&mut self.out, self.history.event_at(oldest));
        self.pending -= 1;
        self.dirty = true;
    }

    /// Appends the checksum of everything before it, its own tag included.
    fn put_checksum(&mut self) {
        self.out.push(tag::CHECKSUM);
        let mut crc = self.crc;
        crc.add(&self.out);
        self.out.extend_from_slice(&crc.value().to_le_bytes());
        self.dirty = false;
    }

    /// Appends a record that is no event, which may stand anywhere between events, as a text does.
    fn put_skippable(&mut self, tag: u8, body: &[u8]) -> io::Result<()> {
        wire::put_body(&mut self.out, tag, body);
        self.dirty = true;
        self.flush_chunk()
    }

    fn flush_chunk(&mut self) -> io::Result<()> {
        self.crc.add(&self.out);
        let written = self.sink.write_all(&self.out);
        self.out.clear();
        self.track(written)
    }

    fn ensure_open(&self) -> io::Result<()> {
        match self.state {
            State::Open => Ok(()),
            State::Finished => Err(io::Error::other("the trace is finished")),
            State::Broken(kind) => Err(kind.into()),
        }
    }

    fn track(&mut self, result: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &result {
            self.state = State::Broken(error.kind());
            self.open = None;
        }
        result
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.state == State::Open {
            // There is no one left to tell.
            let _ = self.flush();
        }
    }
}
