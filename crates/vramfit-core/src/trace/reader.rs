//! Reads a trace event by event, unfolding repeats as it goes.
//!
//! A file may be cut off (the run died, or is still going on) and then gives all its complete
//! records; it may be corrupt, and then gives an error. Memory is bounded by the window of the
//! format and by what the file really holds, never by a number in it.

use std::io::Read;

use rustc_hash::FxHashMap;

use super::compiler_warning::{CompilerWarning, Warnings};
use super::decoder::{Source, Stop, invalid};
use super::event::{Event, Footer, Header, TextId};
use super::event_source::Repetition;
use super::history::{History, WINDOW};
use super::not_computed::{self, NotComputed};
use super::note::{self, MAX_NOTE_BYTES, MAX_NOTES, Note};
use super::run_environment::RunEnvironment;
use super::wire::{
    Crc, MAGIC, MAX_EVENTS, MAX_JSON_BYTES, MAX_MEMORY_BYTES, MAX_NOT_COMPUTED_BYTES,
    MAX_SETTINGS_BYTES, MAX_TEXT_BYTES, MAX_WARNING_BYTES, VERSION, tag,
};
use crate::error::Result;
use crate::program::ProgramMemory;

/// Reads one trace. Iterating gives the events exactly as they were written.
///
/// The texts that an event refers to are known as soon as the event was returned; the footer is
/// known when the iteration has ended.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    header: Header,
    texts: Vec<Box<str>>,
    history: History,
    repeat: Option<Repeat>,
    allocations: u64,
    events: u64,
    footer: Option<Footer>,
    memories: FxHashMap<u32, Vec<u8>>,
    warnings: Warnings,
    notes: Vec<Note>,
    end: TraceEnd,
    settings: Option<RunEnvironment>,
    not_computed: Vec<NotComputed>,
    ended: bool,
}

/// Where the records of a trace end, before its footer if it has one: where a note may be added.
#[derive(Clone, Copy, Debug)]
pub struct TraceEnd {
    /// Bytes of the file before it.
    pub offset: u64,
    /// The checksum of these.
    pub(super) crc: Crc,
}

/// A repeat that is being unfolded.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    distance: u64,
    count: u64,
    left: u64,
    cursor: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header. The source need not be buffered.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when this is no trace, of another version, or cut off
    /// inside its header, and [`crate::ErrorKind::Io`] when it cannot be read.
    pub fn new(source: R) -> Result<Reader<R>> {
        let mut source = Source::new(source);
        let header = match read_header(&mut source) {
            Ok(header) => header,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Truncated) => return Err(invalid("the trace ends inside its header")),
        };
        let end = TraceEnd {
            offset: source.offset(),
            crc: source.sum(),
        };
        Ok(Reader {
            source,
            header,
            texts: Vec::new(),
            history: History::default(),
            repeat: None,
            allocations: 0,
            events: 0,
            footer: None,
            memories: FxHashMap::default(),
            warnings: Warnings::default(),
            notes: Vec::new(),
            end,
            settings: None,
            not_computed: Vec::new(),
            ended: false,
        })
    }

    /// Returns what the trace begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns what the trace ends with: `None` before the last event was read, and for a trace
    /// that was cut off.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Returns a text by the id that an event of this trace carries; empty for an unknown id.
    pub fn text(&self, id: TextId) -> &str {
        let index = (id.0 as usize).checked_sub(1);
        index
            .and_then(|index| self.texts.get(index))
            .map_or("", |text| text)
    }

    /// Returns where the memory of a program goes, as far as the trace was read; `None` where it says
    /// nothing of that program.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when what it says is damaged.
    pub fn program_memory(&self, program: u32) -> Result<Option<ProgramMemory>> {
        let stored = self.memories.get(&program);
        stored
            .map(|stored| ProgramMemory::from_stored(stored))
            .transpose()
    }

    /// Returns what the compiler warned of, as far as the trace was read; equal warnings together.
    pub fn compiler_warnings(&self) -> &[CompilerWarning] {
        self.warnings.all()
    }

    /// Returns what was noted beside the events, as far as the trace was read.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns where the records end. Known when the iteration has ended without an error.
    pub fn end(&self) -> TraceEnd {
        self.end
    }

    /// Returns the settings of the run, as far as the trace was read; `None` where it does not tell.
    pub fn settings(&self) -> Option<&RunEnvironment> {
        self.settings.as_ref()
    }

    /// Returns the programs whose values were not computed any more, as far as the trace was read.
    pub fn not_computed(&self) -> &[NotComputed] {
        &self.not_computed
    }

    /// Returns how many events were read so far, repeats unfolded.
    pub fn events_read(&self) -> u64 {
        self.events
    }

    /// Returns the next event, or `None` at the end or where the trace was cut off.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the trace is corrupt from here on, and
    /// [`crate::ErrorKind::Io`] when it cannot be read. After an error there are no more events.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if self.ended {
            return Ok(None);
        }
        match self.advance() {
            Ok(Some(event)) => Ok(Some(event)),
            Ok(None) | Err(Stop::Truncated) => {
                self.ended = true;
                Ok(None)
            }
            Err(Stop::Failed(error)) => {
                self.ended = true;
                Err(error)
            }
        }
    }

    /// Says whether the coming events repeat earlier ones of the trace.
    pub fn repetition(&self) -> Option<Repetition> {
        let repeat = self.repeat.filter(|repeat| repeat.left > 0)?;
        Some(Repetition {
            period: repeat.distance,
            done: repeat.count - repeat.left,
            left: repeat.left,
        })
    }

    /// Passes over events that repeat: so many times as many as [`Repetition::period`] says. Where fewer
    /// are left, over as many passes as are left; where none repeat, over none.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when that would be more events than any run has.
    pub fn skip_passes(&mut self, passes: u64) -> Result<()> {
        let Some(repeat) = &mut self.repeat else {
            return Ok(());
        };
        let passes = passes.min(repeat.left / repeat.distance);
        let events = passes * repeat.distance;
        let first = self.history.source(repeat.distance, 0);
        let pass = (first..self.history.len()).map(|position| self.history.at(position));
        let allocations = pass.filter(|event| matches!(event, Event::Allocate { .. }));
        repeat.left -= events;
        self.events += events;
        self.allocations += passes * allocations.count() as u64;
        if self.events > MAX_EVENTS {
            self.ended = true;
            return Err(match self.source.wrong("more events than any run has") {
                Stop::Failed(error) => error,
                Stop::Truncated => invalid("more events than any run has"),
            });
        }
        Ok(())
    }

    fn advance(&mut self) -> std::result::Result<Option<Event>, Stop> {
        loop {
            if let Some(repeat) = &mut self.repeat {
                if repeat.left > 0 {
                    let event = *self.history.at(repeat.cursor);
                    repeat.left -= 1;
                    repeat.cursor += 1;
                    if repeat.cursor == self.history.len() {
                        repeat.cursor -= repeat.distance;
                    }
                    return self.absolute(event).map(Some);
                }
                self.history.push_repeat(repeat.distance, repeat.count);
                self.repeat = None;
            }
            self.end = TraceEnd {
                offset: self.source.offset(),
                crc: self.source.sum(),
            };
            match self.source.byte()? {
                tag::TEXT => {
                    let length = self.source.number()?;
                    let bytes = self.source.bytes(length, MAX_TEXT_BYTES)?;
                    let text = String::from_utf8(bytes)
                        .map_err(|_| self.source.wrong("a text is not UTF-8"))?;
                    if self.texts.len() == u32::MAX as usize {
                        return Err(self.source.wrong("too many texts"));
                    }
                    self.texts.push(text.into_boxed_str());
                }
                tag::REPEAT => {
                    let (distance, count) = (self.source.number()?, self.source.number()?);
                    if distance == 0 || distance > WINDOW.min(self.history.len()) {
                        return Err(self.source.wrong("a repeat reaches back too far"));
                    }
                    if count == 0 || count > MAX_EVENTS {
                        return Err(self.source.wrong("a repeat of no or too many events"));
                    }
                    let cursor = self.history.source(distance, 0);
                    self.repeat = Some(Repeat {
                        distance,
                        count,
                        left: count,
                        cursor,
                    });
                }
                tag::CHECKSUM => self.check()?,
                tag::FOOTER => return self.finish().map(|()| None),
                tag::MEMORY => {
                    let length = self.source.number()?;
                    let body = self.source.bytes(length, MAX_MEMORY_BYTES)?;
                    let mut rest = Source::new(&body[..]);
                    let program = match rest.number() {
                        Ok(program) if program <= u64::from(u32::MAX) => program as u32,
                        _ => return Err(self.source.wrong("buffers of no program")),
                    };
                    let stored = body[rest.offset() as usize..].to_vec();
                    self.memories.insert(program, stored);
                }
                tag::WARNING => {
                    let length = self.source.number()?;
                    let body = self.source.bytes(length, MAX_WARNING_BYTES)?;
                    self.warnings.add(&String::from_utf8_lossy(&body));
                }
                tag::STEP_NOTE | tag::PROCESS_NOTE => {
                    let length = self.source.number()?;
                    if length > MAX_NOTE_BYTES as u64 {
                        self.source.skip(length)?;
                        continue;
                    }
                    let body = self.source.bytes(length, MAX_NOTE_BYTES)?;
                    if self.notes.len() < MAX_NOTES {
                        self.notes.extend(note::parse(&body));
                    }
                }
                tag::SETTINGS => {
                    let length = self.source.number()?;
                    let body = self.source.bytes(length, MAX_SETTINGS_BYTES)?;
                    let settings = serde_json::from_slice(&body)
                        .map_err(|_| self.source.wrong("the settings are not understood"))?;
                    self.settings = Some(settings);
                }
                tag::NOT_COMPUTED => {
                    let length = self.source.number()?;
                    let body = self.source.bytes(length, MAX_NOT_COMPUTED_BYTES)?;
                    not_computed::add(&mut self.not_computed, &String::from_utf8_lossy(&body));
                }
                tag if tag >= tag::SKIPPABLE => {
                    let length = self.source.number()?;
                    self.source.skip(length)?;
                }
                tag => match self.source.event(tag, self.texts.len())? {
                    Some(event) => {
                        self.history.push(event);
                        return self.absolute(event).map(Some);
                    }
                    None => return Err(self.source.wrong("an unknown record")),
                },
            }
        }
    }

    /// Counts an event and turns it from relative into absolute form.
    #[inline]
    fn absolute(&mut self, event: Event) -> std::result::Result<Event, Stop> {
        self.events += 1;
        if self.events > MAX_EVENTS {
            return Err(self.source.wrong("more events than any run has"));
        }
        let before = self.allocations;
        self.allocations += u64::from(matches!(event, Event::Allocate { .. }));
        event
            .renumbered(|back| before.checked_sub(back).filter(|_| back > 0))
            .ok_or_else(|| {
                self.source
                    .wrong("an allocation is freed that was never made")
            })
    }

    /// Compares the checksum at this place with that of everything before it.
    fn check(&mut self) -> std::result::Result<(), Stop> {
        let counted = self.source.checksum();
        let mut written = [0; 4];
        for byte in &mut written {
            *byte = self.source.byte()?;
        }
        if u32::from_le_bytes(written) != counted {
            return Err(self.source.wrong("the checksum does not match"));
        }
        Ok(())
    }

    /// Reads the footer, which counts only with its checksum behind it and nothing after.
    fn finish(&mut self) -> std::result::Result<(), Stop> {
        let length = self.source.number()?;
        let text = self.source.bytes(length, MAX_JSON_BYTES)?;
        if self.source.byte()? != tag::CHECKSUM {
            return Err(self.source.wrong("the footer has no checksum"));
        }
        self.check()?;
        let footer = serde_json::from_slice(&text)
            .map_err(|error| Stop::Failed(invalid("the footer is not understood").cause(error)))?;
        match self.source.byte() {
            Err(Stop::Truncated) => {
                self.footer = Some(footer);
                Ok(())
            }
            Err(stop) => Err(stop),
            Ok(_) => Err(self.source.wrong("something follows the footer")),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

fn read_header<R: Read>(source: &mut Source<R>) -> std::result::Result<Header, Stop> {
    let foreign = || Stop::Failed(invalid("this is not a vramfit trace"));
    for expected in MAGIC {
        match source.byte() {
            Ok(byte) if byte == *expected => {}
            Ok(_) | Err(Stop::Truncated) => return Err(foreign()),
            Err(stop) => return Err(stop),
        }
    }
    let version = source.line(32).map_err(|stop| match stop {
        Stop::Failed(error) if error.kind() == crate::ErrorKind::InvalidFile => foreign(),
        stop => stop,
    })?;
    if version != VERSION {
        let (theirs, ours) = (
            String::from_utf8_lossy(&version),
            String::from_utf8_lossy(VERSION),
        );
        let error = invalid(format!(
            "the trace has format version `{theirs}`, not `{ours}`"
        ));
        return Err(Stop::Failed(
            error.hint("read it with the vramfit that wrote it"),
        ));
    }
    let header = source.line(MAX_JSON_BYTES)?;
    serde_json::from_slice(&header)
        .map_err(|error| Stop::Failed(invalid("the header is not understood").cause(error)))
}
