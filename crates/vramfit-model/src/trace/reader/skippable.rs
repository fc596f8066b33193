//! Reads the records that may be skipped.

use std::io::Read;

use super::Reader;
use crate::program::ProgramTime;
use crate::trace::decoder::{Decoder, ReadResult};
use crate::trace::note::{MAX_NOTE_BYTES, MAX_NOTES};
use crate::trace::wire::{
    MAX_MEMORY_BYTES, MAX_NOT_COMPUTED_BYTES, MAX_SETTINGS_BYTES, MAX_TIME_BYTES,
    MAX_WARNING_BYTES, tag,
};
use crate::trace::{Note, compiler_warning, not_computed};

impl<R: Read> Reader<R> {
    /// Reads a record that begins with its length. One of an unknown kind is skipped.
    pub(super) fn read_skippable(&mut self, tag: u8) -> ReadResult<()> {
        match tag {
            tag::MEMORY => {
                let body = self.read_body(MAX_MEMORY_BYTES)?;
                let (program, stored) = self.split_program(&body)?;
                self.memories.insert(program, stored.to_vec());
            }
            tag::PROGRAM_TIME => {
                let body = self.read_body(MAX_TIME_BYTES)?;
                let (program, stored) = self.split_program(&body)?;
                // What is not understood is as good as not there.
                self.times.extend(ProgramTime::from_stored(stored).map(|time| (program, time)));
            }
            tag::WARNING => {
                let body = self.read_body(MAX_WARNING_BYTES)?;
                compiler_warning::add(&mut self.warnings, &String::from_utf8_lossy(&body));
            }
            tag::STEP_NOTE | tag::PROCESS_NOTE => {
                let length = self.decoder.read_uint()?;
                if length > MAX_NOTE_BYTES as u64 {
                    return self.decoder.skip(length);
                }
                let body = self.decoder.read_bytes(length, MAX_NOTE_BYTES)?;
                if self.notes.len() < MAX_NOTES {
                    // A note of a kind that is not known is passed over.
                    self.notes.extend(serde_json::from_slice::<Note>(&body));
                }
            }
            tag::SETTINGS => {
                let body = self.read_body(MAX_SETTINGS_BYTES)?;
                let settings = serde_json::from_slice(&body)
                    .map_err(|_| self.decoder.corrupt("the settings record is invalid"))?;
                self.settings = Some(settings);
            }
            tag::NOT_COMPUTED => {
                let body = self.read_body(MAX_NOT_COMPUTED_BYTES)?;
                not_computed::add(&mut self.not_computed, &String::from_utf8_lossy(&body));
            }
            _ => {
                let length = self.decoder.read_uint()?;
                self.decoder.skip(length)?;
            }
        }
        Ok(())
    }

    /// Returns the program that a record is about, and the rest of the record.
    fn split_program<'a>(&self, body: &'a [u8]) -> ReadResult<(u32, &'a [u8])> {
        let mut rest = Decoder::new(body);
        match rest.read_uint() {
            Ok(program) if program <= u64::from(u32::MAX) => {
                Ok((program as u32, &body[rest.offset() as usize..]))
            }
            _ => Err(self.decoder.corrupt("a record refers to an unknown program")),
        }
    }

    pub(super) fn read_body(&mut self, max_bytes: usize) -> ReadResult<Vec<u8>> {
        let length = self.decoder.read_uint()?;
        self.decoder.read_bytes(length, max_bytes)
    }
}
