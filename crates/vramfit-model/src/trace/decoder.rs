//! Takes a trace apart: bytes, numbers, texts and single events, with the checksum of what was taken.
//!
//! Nothing here trusts the file: every number is bounded before it is used.

use std::io::{ErrorKind as IoKind, Read};

use super::event::{CallbackSkip, Event, Purpose, TextId};
use super::header::Header;
use super::wire::{Crc, MAGIC, MAX_JSON_BYTES, VERSION, tag};
use crate::allocator::PoolSpace;
use crate::error::Error;
use crate::program::{EstimateSource, ProgramSizes, ScratchPhase};

/// Why reading stopped inside a record.
#[derive(Debug)]
pub(super) enum ReadStop {
    /// The file ends here: the writer died, or is still writing.
    Truncated,
    /// The file is wrong, or could not be read.
    Failed(Error),
}

/// Shorthand for results of [`Decoder`].
pub(super) type ReadResult<T> = Result<T, ReadStop>;

/// A buffered reader that keeps the checksum of what it has handed out.
#[derive(Debug)]
pub(super) struct Decoder<R> {
    inner: R,
    buffer: Vec<u8>,
    next: usize,
    summed: usize,
    crc: Crc,
    offset: u64,
}

impl<R: Read> Decoder<R> {
    pub(super) fn new(inner: R) -> Self {
        Decoder { inner, buffer: Vec::new(), next: 0, summed: 0, crc: Crc::new(), offset: 0 }
    }

    /// Returns how many bytes of the file were taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.next as u64
    }

    /// Returns the checksum of all bytes taken so far, to which more bytes can be added.
    pub(super) fn crc(&mut self) -> Crc {
        self.crc.add(&self.buffer[self.summed..self.next]);
        self.summed = self.next;
        self.crc
    }

    /// Says that something at this place of the file is wrong.
    pub(super) fn corrupt(&self, what: &str) -> ReadStop {
        ReadStop::Failed(self.corruption(what))
    }

    /// Returns the same as an error.
    pub(super) fn corruption(&self, what: &str) -> Error {
        Error::invalid_file(format!("the trace is corrupt at byte {}: {what}", self.offset()))
    }

    fn fill_buffer(&mut self) -> ReadResult<()> {
        self.crc();
        self.offset += self.next as u64;
        (self.next, self.summed) = (0, 0);
        self.buffer.resize(64 << 10, 0);
        loop {
            match self.inner.read(&mut self.buffer) {
                Ok(count) => {
                    self.buffer.truncate(count);
                    return if count == 0 { Err(ReadStop::Truncated) } else { Ok(()) };
                }
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) => {
                    self.buffer.clear();
                    let what = Error::io("the trace could not be read");
                    return Err(ReadStop::Failed(what.cause(error)));
                }
            }
        }
    }

    /// Takes one byte.
    pub(super) fn read_byte(&mut self) -> ReadResult<u8> {
        if self.next == self.buffer.len() {
            self.fill_buffer()?;
        }
        let byte = self.buffer[self.next];
        self.next += 1;
        Ok(byte)
    }

    /// Takes one LEB128 integer.
    pub(super) fn read_uint(&mut self) -> ReadResult<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.corrupt("a number is longer than 64 bits"))
    }

    /// Takes `length` bytes. Memory grows with what the file really holds, not with `length`.
    pub(super) fn read_bytes(&mut self, length: u64, limit: usize) -> ReadResult<Vec<u8>> {
        if length > limit as u64 {
            return Err(self.corrupt("a text exceeds the maximum length"));
        }
        let mut taken = Vec::new();
        while taken.len() < length as usize {
            let left = length - taken.len() as u64;
            taken.extend_from_slice(self.read_part(left)?);
        }
        Ok(taken)
    }

    /// Takes what the buffer has of this many bytes, at least one.
    fn read_part(&mut self, length: u64) -> ReadResult<&[u8]> {
        if self.next == self.buffer.len() {
            self.fill_buffer()?;
        }
        let part = &self.buffer[self.next..];
        let part = &part[..part.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
        self.next += part.len();
        Ok(part)
    }

    /// Takes bytes up to and without the next line feed.
    pub(super) fn read_line(&mut self, limit: usize) -> ReadResult<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.read_byte()? {
                b'\n' => return Ok(line),
                byte => line.push(byte),
            }
            if line.len() > limit {
                return Err(self.corrupt("a line exceeds the maximum length"));
            }
        }
    }

    /// Passes over `length` bytes.
    pub(super) fn skip(&mut self, mut length: u64) -> ReadResult<()> {
        while length > 0 {
            length -= self.read_part(length)?.len() as u64;
        }
        Ok(())
    }

    fn read_small_uint(&mut self) -> ReadResult<u32> {
        let value = self.read_uint()?;
        u32::try_from(value).map_err(|_| self.corrupt("a number is longer than 32 bits"))
    }

    fn read_text_id(&mut self, texts: usize) -> ReadResult<TextId> {
        let id = self.read_small_uint()?;
        if id as usize > texts {
            return Err(self.corrupt("a text is used before it is defined"));
        }
        Ok(TextId(id))
    }

    fn read_flag(&mut self) -> ReadResult<bool> {
        match self.read_uint()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.corrupt("a flag is neither 0 nor 1")),
        }
    }

    /// Takes one of the values of an enumeration; its number is its place in `all`.
    fn read_variant<T: Copy>(&mut self, all: &[T], unknown: &'static str) -> ReadResult<T> {
        let number = self.read_uint()?;
        usize::try_from(number)
            .ok()
            .and_then(|number| all.get(number).copied())
            .ok_or_else(|| self.corrupt(unknown))
    }

    fn read_space(&mut self) -> ReadResult<PoolSpace> {
        self.read_variant(&PoolSpace::ALL, "an unknown memory space")
    }

    fn read_purpose(&mut self) -> ReadResult<Purpose> {
        self.read_variant(&Purpose::ALL, "an unknown purpose")
    }

    fn read_sizes(&mut self) -> ReadResult<ProgramSizes> {
        Ok(ProgramSizes {
            argument_bytes: self.read_uint()?,
            output_bytes: self.read_uint()?,
            alias_bytes: self.read_uint()?,
            temp_bytes: self.read_uint()?,
            constant_bytes: self.read_uint()?,
            code_bytes: self.read_uint()?,
        })
    }

    /// Takes the fields of the event that begins with `tag`, in relative form, where `texts` texts
    /// are defined so far. Returns `None` when the tag is not that of an event.
    pub(super) fn read_event(&mut self, tag: u8, texts: usize) -> ReadResult<Option<Event>> {
        // Struct expressions evaluate their fields in the order written: that of the file.
        Ok(Some(match tag {
            tag::PROGRAM => Event::Program {
                program: self.read_small_uint()?,
                name: self.read_text_id(texts)?,
                sizes: self.read_sizes()?,
                devices: self.read_small_uint()?,
                loaded: self.read_flag()?,
                compile_attempt: self.read_text_id(texts)?,
                site: self.read_text_id(texts)?,
            },
            tag::VARIANT => Event::Variant {
                program: self.read_small_uint()?,
                name: self.read_text_id(texts)?,
                sizes: self.read_sizes()?,
            },
            tag::SCRATCH => Event::Scratch {
                program: self.read_small_uint()?,
                library: self.read_text_id(texts)?,
                routine: self.read_text_id(texts)?,
                site: self.read_text_id(texts)?,
                low_bytes: self.read_uint()?,
                high_bytes: self.read_uint()?,
                source: self
                    .read_variant(&EstimateSource::ALL, "an unknown source of an estimate")?,
                phase: self
                    .read_variant(&ScratchPhase::ALL, "an unknown phase of scratch memory")?,
            },
            tag::UNLOAD => Event::Unload { program: self.read_small_uint()? },
            tag::BEGIN => {
                Event::Begin { program: self.read_small_uint()?, site: self.read_text_id(texts)? }
            }
            tag::ARGUMENT => Event::Argument {
                parameter: self.read_small_uint()?,
                allocation: self.read_uint()?,
            },
            tag::END => Event::End,
            tag::ALLOCATE => Event::Allocate {
                device: self.read_small_uint()?,
                bytes: self.read_uint()?,
                alignment: self.read_uint()?,
                space: self.read_space()?,
                purpose: self.read_purpose()?,
                slot: self.read_small_uint()?,
                site: self.read_text_id(texts)?,
            },
            tag::FREE => Event::Free { allocation: self.read_uint()? },
            tag::UNREAD => Event::Unread { allocation: self.read_uint()? },
            tag::ALLOCATION_FAILURE | tag::SITED_ALLOCATION_FAILURE => Event::AllocationFailure {
                device: self.read_small_uint()?,
                bytes: self.read_uint()?,
                alignment: self.read_uint()?,
                space: self.read_space()?,
                purpose: self.read_purpose()?,
                slot: self.read_small_uint()?,
                message: self.read_text_id(texts)?,
                site: match tag {
                    tag::SITED_ALLOCATION_FAILURE => self.read_text_id(texts)?,
                    _ => TextId(0),
                },
            },
            tag::DRIVER => Event::Driver {
                device: self.read_small_uint()?,
                asked: self.read_uint()?,
                address: self.read_uint()?,
                granted: self.read_uint()?,
            },
            tag::OUTSIDE_POOL => {
                Event::OutsidePool { device: self.read_small_uint()?, bytes: self.read_uint()? }
            }
            tag::FREE_ABORTS => Event::FreeAborts {
                allocation: self.read_uint()?,
                message: self.read_text_id(texts)?,
            },
            tag::CLEAR_PEAK => Event::ClearPeak { device: self.read_small_uint()? },
            tag::UNKNOWN_READ => {
                Event::UnknownRead { site: self.read_text_id(texts)?, bytes: self.read_uint()? }
            }
            tag::SHAPE_READ => {
                Event::ShapeRead { site: self.read_text_id(texts)?, bytes: self.read_uint()? }
            }
            tag::DECISIVE_READ => Event::DecisiveRead {
                site: self.read_text_id(texts)?,
                bytes: self.read_uint()?,
                expression: self.read_text_id(texts)?,
                value: self.read_text_id(texts)?,
            },
            tag::CALLBACK => Event::Callback {
                site: self.read_text_id(texts)?,
                calls: self.read_uint()?,
                errors: self.read_uint()?,
                error: self.read_text_id(texts)?,
            },
            tag::CALLBACK_SKIPPED => Event::CallbackSkipped {
                site: self.read_text_id(texts)?,
                calls: self.read_uint()?,
                reason: self.read_variant(&CallbackSkip::ALL, "an unknown reason")?,
            },
            _ => return Ok(None),
        }))
    }
}

/// Reads what is before the first event.
pub(super) fn read_header<R: Read>(decoder: &mut Decoder<R>) -> ReadResult<Header> {
    let foreign = || ReadStop::Failed(Error::invalid_file("this is not a vramfit trace"));
    for expected in MAGIC {
        match decoder.read_byte() {
            Ok(byte) if byte == *expected => {}
            Ok(_) | Err(ReadStop::Truncated) => return Err(foreign()),
            Err(stop) => return Err(stop),
        }
    }
    let version = decoder.read_line(32).map_err(|stop| match stop {
        ReadStop::Failed(error) if error.kind() == crate::ErrorKind::InvalidFile => foreign(),
        stop => stop,
    })?;
    if version != VERSION {
        let (theirs, ours) = (String::from_utf8_lossy(&version), String::from_utf8_lossy(VERSION));
        let error =
            Error::invalid_file(format!("the trace has format version `{theirs}`, not `{ours}`"));
        return Err(ReadStop::Failed(error.hint("read it with the vramfit that wrote it")));
    }
    let header = decoder.read_line(MAX_JSON_BYTES)?;
    serde_json::from_slice(&header).map_err(|error| {
        ReadStop::Failed(Error::invalid_file("the header is invalid").cause(error))
    })
}

#[cfg(test)]
mod tests {
    use super::super::wire::put;
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut out = Vec::new();
                put(&mut out, value);
                assert_eq!(Decoder::new(&out[..]).read_uint().expect("it was just written"), value);
            }
        }
    }

    #[test]
    fn numbers_over_64_bits_are_refused() {
        for bytes in
            [&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..], &[0x80; 11][..]]
        {
            let stop = Decoder::new(bytes).read_uint().expect_err("too long");
            assert!(matches!(stop, ReadStop::Failed(_)), "{stop:?}");
        }
    }
}
