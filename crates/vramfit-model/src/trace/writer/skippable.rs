//! Writes the records that a reader may skip.

use std::io;

use super::Writer;
use crate::program::ProgramTime;
use crate::trace::note::Note;
use crate::trace::records::{invalid_input, put_note, to_json};
use crate::trace::run_environment::RunEnvironment;
use crate::trace::wire::{
    self, MAX_MEMORY_BYTES, MAX_NOT_COMPUTED_BYTES, MAX_SETTINGS_BYTES, MAX_TIME_BYTES,
    MAX_WARNING_BYTES, tag,
};
use crate::trace::{compiler_warning, not_computed};

impl Writer {
    /// Adds where the memory of a program goes, as [`crate::program::ProgramMemory::to_stored`] keeps
    /// it. Its number is that of an [`crate::trace::Event::Program`] before or after it.
    ///
    /// # Errors
    /// What the sink says, and [`io::ErrorKind::InvalidInput`] for more than 64 MiB.
    pub fn program_memory(&mut self, program: u32, stored: &[u8]) -> io::Result<()> {
        self.put_of_program(tag::MEMORY, program, stored, MAX_MEMORY_BYTES)
    }

    /// Adds how long an execution of a program takes, by its number as in [`Writer::program_memory`].
    ///
    /// # Errors
    /// What the sink says, and [`io::ErrorKind::InvalidInput`] for more than 1 MiB.
    pub fn program_time(&mut self, program: u32, time: &ProgramTime) -> io::Result<()> {
        let stored = time.to_stored();
        self.put_of_program(tag::PROGRAM_TIME, program, &stored, MAX_TIME_BYTES)
    }

    fn put_of_program(
        &mut self,
        tag: u8,
        program: u32,
        stored: &[u8],
        max_bytes: usize,
    ) -> io::Result<()> {
        self.ensure_open()?;
        let mut body = Vec::with_capacity(stored.len() + 5);
        wire::put(&mut body, u64::from(program));
        body.extend_from_slice(stored);
        if body.len() > max_bytes {
            let what = "a record of a program is longer than a trace can hold";
            return Err(invalid_input(what));
        }
        self.put_skippable(tag, &body)
    }

    /// Adds what the compiler warned of while it compiled a program: the source file that speaks, and
    /// its text. What is over 64 KiB is cut there.
    ///
    /// # Errors
    /// What the sink says.
    pub fn compiler_warning(&mut self, program: &str, source: &str, text: &str) -> io::Result<()> {
        self.ensure_open()?;
        let mut body = compiler_warning::body(program, source, text).into_bytes();
        body.truncate(MAX_WARNING_BYTES);
        self.put_skippable(tag::WARNING, &body)
    }

    /// Adds a note. It stands behind the events that were added before it.
    ///
    /// # Errors
    /// What the sink says, and [`io::ErrorKind::InvalidInput`] for more than 64 KiB.
    pub fn add_note(&mut self, note: &Note) -> io::Result<()> {
        self.flush()?;
        put_note(&mut self.out, note)?;
        self.dirty = true;
        self.flush_chunk()
    }

    /// Adds the settings of the run, in place of those that an earlier record holds.
    ///
    /// # Errors
    /// What the sink says, and [`io::ErrorKind::InvalidInput`] for more than 4 MiB.
    pub fn settings(&mut self, settings: &RunEnvironment) -> io::Result<()> {
        self.ensure_open()?;
        let body = to_json(settings)?;
        if body.len() > MAX_SETTINGS_BYTES {
            let what = "the settings of the run are longer than a trace can hold";
            return Err(invalid_input(what));
        }
        self.put_skippable(tag::SETTINGS, &body)
    }

    /// Adds that the values of a program are not computed from here on, and why; see
    /// [`crate::trace::NotComputed`]. What is over 64 KiB is cut there.
    ///
    /// # Errors
    /// What the sink says.
    pub fn not_computed(&mut self, program: &str, reason: &str, spent_ms: u64) -> io::Result<()> {
        self.ensure_open()?;
        let mut body = not_computed::body(program, reason, spent_ms).into_bytes();
        body.truncate(MAX_NOT_COMPUTED_BYTES);
        self.put_skippable(tag::NOT_COMPUTED, &body)
    }
}
