//! Where events come from.

use std::io::Read;

use super::compiler_warning::CompilerWarning;
use super::event::{Event, TextId};
use super::header::{Footer, Header};
use super::not_computed::NotComputed;
use super::note::Note;
use super::reader::Reader;
use super::run_environment::RunEnvironment;
use crate::error::Result;
use crate::program::{ProgramMemory, ProgramTime};

/// A run that is read event by event.
pub trait EventSource {
    /// Returns what it begins with.
    fn header(&self) -> &Header;

    /// Returns the next event, or `None` at the end.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when what comes is no event, and [`crate::ErrorKind::Io`]
    /// when it cannot be read.
    fn next_event(&mut self) -> Result<Option<Event>>;

    /// Returns a text by the id that an event carries; empty for an unknown id.
    fn text(&self, id: TextId) -> &str;

    /// Returns what it ends with, once the last event was read; `None` if it was cut off.
    fn footer(&self) -> Option<&Footer>;

    /// Returns where the memory of a program goes, by its number; `None` where that is not known.
    fn program_memory(&self, program: u32) -> Option<ProgramMemory> {
        let _ = program;
        None
    }

    /// Returns how long an execution of a program takes, by its number; `None` where that is not known.
    fn program_time(&self, program: u32) -> Option<&ProgramTime> {
        let _ = program;
        None
    }

    /// Returns what the compiler warned of, as far as was read.
    fn compiler_warnings(&self) -> &[CompilerWarning] {
        &[]
    }

    /// Returns what was noted beside the events, as far as was read.
    fn notes(&self) -> &[Note] {
        &[]
    }

    /// Returns the settings of the run, where they are known.
    fn settings(&self) -> Option<&RunEnvironment> {
        None
    }

    /// Returns the programs whose values were not computed any more, as far as was read.
    fn not_computed(&self) -> &[NotComputed] {
        &[]
    }

    /// Returns `true` if it holds the answers to its requests. Where it does not, it is a mere list of
    /// requests, which does not depend on whether they are met.
    fn has_recorded_results(&self) -> bool {
        true
    }
}

impl<R: Read> EventSource for Reader<R> {
    fn header(&self) -> &Header {
        self.header()
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        self.next_event()
    }

    fn text(&self, id: TextId) -> &str {
        self.text(id)
    }

    fn footer(&self) -> Option<&Footer> {
        self.footer()
    }

    fn program_memory(&self, program: u32) -> Option<ProgramMemory> {
        // What is damaged is as good as not there; every total comes from the events.
        self.program_memory(program).ok().flatten()
    }

    fn program_time(&self, program: u32) -> Option<&ProgramTime> {
        self.program_time(program)
    }

    fn compiler_warnings(&self) -> &[CompilerWarning] {
        self.compiler_warnings()
    }

    fn notes(&self) -> &[Note] {
        self.notes()
    }

    fn settings(&self) -> Option<&RunEnvironment> {
        self.settings()
    }

    fn not_computed(&self) -> &[NotComputed] {
        self.not_computed()
    }
}
