//! Reads a trace event by event, unfolding repeats as it goes.
//!
//! A file may be cut off (the run died, or is still going on) and then gives all its complete
//! records; it may be corrupt, and then gives an error. Memory is bounded by the window of the
//! format and by what the file really holds, never by a number in it.

mod skippable;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustc_hash::FxHashMap;
use vramfit_base::files::cannot_read;

use super::compiler_warning::CompilerWarning;
use super::decoder::{Decoder, ReadResult, ReadStop, read_header};
use super::event::{Event, TextId};
use super::header::{Footer, Header};
use super::history::{History, WINDOW};
use super::not_computed::NotComputed;
use super::note::Note;
use super::run_environment::RunEnvironment;
use super::wire::{Crc, MAX_EXPANDED_EVENTS, MAX_JSON_BYTES, MAX_TEXT_BYTES, tag};
use crate::error::{Error, Result};
use crate::program::{ProgramMemory, ProgramTime};

/// Reads one trace. Iterating gives the events exactly as they were written.
///
/// The texts that an event refers to are known as soon as the event was returned; the footer is
/// known when the iteration has ended.
#[derive(Debug)]
pub struct Reader<R> {
    decoder: Decoder<R>,
    header: Header,
    texts: Vec<Box<str>>,
    history: History,
    repeat: Option<Repeat>,
    allocations: u64,
    events: u64,
    footer: Option<Footer>,
    memories: FxHashMap<u32, Vec<u8>>,
    times: FxHashMap<u32, ProgramTime>,
    warnings: Vec<CompilerWarning>,
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

impl TraceEnd {
    fn at<R: Read>(decoder: &mut Decoder<R>) -> TraceEnd {
        TraceEnd { offset: decoder.offset(), crc: decoder.crc() }
    }
}

/// A repeat that is being unfolded.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    distance: u64,
    count: u64,
    left: u64,
    cursor: u64,
}

impl Reader<File> {
    /// Opens the trace of a run and reads its header.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Io`] when it cannot be opened, and those of [`Reader::new`].
    pub fn open(path: &Path) -> Result<Reader<File>> {
        let file = File::open(path).map_err(|error| cannot_read(path, error))?;
        Reader::new(file)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header. The source need not be buffered.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when this is no trace, of another version, or cut off
    /// inside its header, and [`crate::ErrorKind::Io`] when it cannot be read.
    pub fn new(source: R) -> Result<Reader<R>> {
        let mut decoder = Decoder::new(source);
        let header = match read_header(&mut decoder) {
            Ok(header) => header,
            Err(ReadStop::Failed(error)) => return Err(error),
            Err(ReadStop::Truncated) => {
                return Err(Error::invalid_file("the trace ends inside its header"));
            }
        };
        Ok(Reader {
            end: TraceEnd::at(&mut decoder),
            decoder,
            header,
            texts: Vec::new(),
            history: History::default(),
            repeat: None,
            allocations: 0,
            events: 0,
            footer: None,
            memories: FxHashMap::default(),
            times: FxHashMap::default(),
            warnings: Vec::new(),
            notes: Vec::new(),
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
        index.and_then(|index| self.texts.get(index)).map_or("", |text| text)
    }

    /// Returns where the memory of a program goes, as far as the trace was read; `None` where it says
    /// nothing of that program.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when what it says is damaged.
    pub fn program_memory(&self, program: u32) -> Result<Option<ProgramMemory>> {
        let stored = self.memories.get(&program);
        stored.map(|stored| ProgramMemory::from_stored(stored)).transpose()
    }

    /// Returns how long an execution of a program takes, as far as the trace was read; `None` where it
    /// says nothing of that program.
    pub fn program_time(&self, program: u32) -> Option<&ProgramTime> {
        self.times.get(&program)
    }

    /// Returns what the compiler warned of, as far as the trace was read; equal warnings together.
    pub fn compiler_warnings(&self) -> &[CompilerWarning] {
        &self.warnings
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
        let next = self.advance();
        self.ended = !matches!(next, Ok(Some(_)));
        match next {
            Ok(event) => Ok(event),
            Err(ReadStop::Truncated) => Ok(None),
            Err(ReadStop::Failed(error)) => Err(error),
        }
    }

    fn advance(&mut self) -> ReadResult<Option<Event>> {
        loop {
            if let Some(repeat) = &mut self.repeat {
                if repeat.left > 0 {
                    let event = *self.history.event_at(repeat.cursor);
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
            self.end = TraceEnd::at(&mut self.decoder);
            match self.decoder.read_byte()? {
                tag::TEXT => self.read_text()?,
                tag::REPEAT => self.start_repeat()?,
                tag::CHECKSUM => self.verify_checksum()?,
                tag::FOOTER => return self.read_footer().map(|()| None),
                tag if tag >= tag::SKIPPABLE => self.read_skippable(tag)?,
                tag => match self.decoder.read_event(tag, self.texts.len())? {
                    Some(event) => {
                        self.history.push(event);
                        return self.absolute(event).map(Some);
                    }
                    None => return Err(self.decoder.corrupt("an unknown record")),
                },
            }
        }
    }

    fn read_text(&mut self) -> ReadResult<()> {
        let bytes = self.read_body(MAX_TEXT_BYTES)?;
        let text =
            String::from_utf8(bytes).map_err(|_| self.decoder.corrupt("a text is not UTF-8"))?;
        if self.texts.len() == u32::MAX as usize {
            return Err(self.decoder.corrupt("too many texts"));
        }
        self.texts.push(text.into_boxed_str());
        Ok(())
    }

    fn start_repeat(&mut self) -> ReadResult<()> {
        let (distance, count) = (self.decoder.read_uint()?, self.decoder.read_uint()?);
        if distance == 0 || distance > WINDOW.min(self.history.len()) {
            return Err(self.decoder.corrupt("the distance of a repeat is out of range"));
        }
        if count == 0 {
            return Err(self.decoder.corrupt("a repeat of no events"));
        }
        if count > MAX_EXPANDED_EVENTS.saturating_sub(self.events) {
            return Err(too_many_events());
        }
        self.repeat = Some(Repeat {
            distance,
            count,
            left: count,
            cursor: self.history.copy_source(distance, 0),
        });
        Ok(())
    }

    /// Counts an event and turns it from relative into absolute form.
    #[inline]
    fn absolute(&mut self, event: Event) -> ReadResult<Event> {
        self.events += 1;
        if self.events > MAX_EXPANDED_EVENTS {
            return Err(too_many_events());
        }
        let before = self.allocations;
        self.allocations += u64::from(matches!(event, Event::Allocate { .. }));
        event
            .renumbered(|back| before.checked_sub(back).filter(|_| back > 0))
            .ok_or_else(|| self.decoder.corrupt("an allocation that does not exist is freed"))
    }

    /// Compares the checksum at this place with that of everything before it.
    fn verify_checksum(&mut self) -> ReadResult<()> {
        let counted = self.decoder.crc().value();
        let mut written = [0; 4];
        for byte in &mut written {
            *byte = self.decoder.read_byte()?;
        }
        if u32::from_le_bytes(written) != counted {
            return Err(self.decoder.corrupt("the checksum does not match"));
        }
        Ok(())
    }

    /// Reads the footer, which counts only with its checksum behind it and nothing after.
    fn read_footer(&mut self) -> ReadResult<()> {
        let text = self.read_body(MAX_JSON_BYTES)?;
        if self.decoder.read_byte()? != tag::CHECKSUM {
            return Err(self.decoder.corrupt("the footer has no checksum"));
        }
        self.verify_checksum()?;
        let footer = serde_json::from_slice(&text).map_err(|error| {
            ReadStop::Failed(Error::invalid_file("the footer is invalid").cause(error))
        })?;
        match self.decoder.read_byte() {
            Err(ReadStop::Truncated) => {
                self.footer = Some(footer);
                Ok(())
            }
            Err(stop) => Err(stop),
            Ok(_) => Err(self.decoder.corrupt("data follow the footer")),
        }
    }
}

fn too_many_events() -> ReadStop {
    let message = format!("the trace has more than {MAX_EXPANDED_EVENTS} events");
    let error = Error::unsupported_feature(message);
    ReadStop::Failed(error.hint("end the run earlier, with `--steps N`"))
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}
