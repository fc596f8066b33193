//! Takes a trace apart: bytes, numbers, texts and single events, with the checksum of what was taken.
//!
//! Nothing here trusts the file: every number is bounded before it is used.

use std::io::{ErrorKind as IoKind, Read};

use super::event::{CallbackSkip, Event, ProgramSizes, Purpose, TextId};
use super::wire::{Crc, tag};
use crate::allocator::PoolSpace;
use crate::error::{Error, ErrorKind};
use crate::program::{EstimateSource, ScratchPhase};

/// Why reading stopped inside a record.
#[derive(Debug)]
pub(super) enum Stop {
    /// The file ends here: the writer died, or is still writing.
    Truncated,
    /// The file is wrong, or could not be read.
    Failed(Error),
}

/// Shorthand for results of [`Source`].
pub(super) type Taken<T> = Result<T, Stop>;

/// Says that the file is not a trace that this code can read.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidFile, message)
}

/// A buffered reader that keeps the checksum of what it has handed out.
#[derive(Debug)]
pub(super) struct Source<R> {
    inner: R,
    buffer: Vec<u8>,
    next: usize,
    summed: usize,
    crc: Crc,
    offset: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        Source {
            inner,
            buffer: Vec::new(),
            next: 0,
            summed: 0,
            crc: Crc::new(),
            offset: 0,
        }
    }

    /// Returns how many bytes of the file were taken.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.next as u64
    }

    /// Returns the checksum of all bytes taken so far.
    pub(super) fn checksum(&mut self) -> u32 {
        self.sum().value()
    }

    /// Returns the same in a form to which more bytes can be added.
    pub(super) fn sum(&mut self) -> Crc {
        self.crc.add(&self.buffer[self.summed..self.next]);
        self.summed = self.next;
        self.crc
    }

    /// Says that something at this place of the file is wrong.
    pub(super) fn wrong(&self, what: &str) -> Stop {
        Stop::Failed(invalid(format!(
            "the trace is corrupt at byte {}: {what}",
            self.offset()
        )))
    }

    fn refill(&mut self) -> Taken<()> {
        self.checksum();
        self.offset += self.next as u64;
        (self.next, self.summed) = (0, 0);
        self.buffer.resize(64 << 10, 0);
        loop {
            match self.inner.read(&mut self.buffer) {
                Ok(count) => {
                    self.buffer.truncate(count);
                    return if count == 0 {
                        Err(Stop::Truncated)
                    } else {
                        Ok(())
                    };
                }
                Err(error) if error.kind() == IoKind::Interrupted => {}
                Err(error) => {
                    self.buffer.clear();
                    let what = Error::new(ErrorKind::Io, "the trace could not be read");
                    return Err(Stop::Failed(what.cause(error)));
                }
            }
        }
    }

    /// Takes one byte.
    pub(super) fn byte(&mut self) -> Taken<u8> {
        if self.next == self.buffer.len() {
            self.refill()?;
        }
        let byte = self.buffer[self.next];
        self.next += 1;
        Ok(byte)
    }

    /// Takes one LEB128 integer.
    pub(super) fn number(&mut self) -> Taken<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.wrong("a number is longer than 64 bits"))
    }

    /// Takes `length` bytes. Memory grows with what the file really holds, not with `length`.
    pub(super) fn bytes(&mut self, length: u64, limit: usize) -> Taken<Vec<u8>> {
        if length > limit as u64 {
            return Err(self.wrong("a text is longer than allowed"));
        }
        let mut left = length as usize;
        let mut taken = Vec::new();
        while left > 0 {
            if self.next == self.buffer.len() {
                self.refill()?;
            }
            let count = left.min(self.buffer.len() - self.next);
            taken.extend_from_slice(&self.buffer[self.next..self.next + count]);
            self.next += count;
            left -= count;
        }
        Ok(taken)
    }

    /// Takes bytes up to and without the next line feed.
    pub(super) fn line(&mut self, limit: usize) -> Taken<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return Ok(line),
                byte => line.push(byte),
            }
            if line.len() > limit {
                return Err(self.wrong("a line is longer than allowed"));
            }
        }
    }

    /// Passes over `length` bytes.
    pub(super) fn skip(&mut self, mut length: u64) -> Taken<()> {
        while length > 0 {
            if self.next == self.buffer.len() {
                self.refill()?;
            }
            let count = length.min((self.buffer.len() - self.next) as u64);
            self.next += count as usize;
            length -= count;
        }
        Ok(())
    }

    fn small(&mut self) -> Taken<u32> {
        let value = self.number()?;
        u32::try_from(value).map_err(|_| self.wrong("a number is longer than 32 bits"))
    }

    fn text(&mut self, texts: usize) -> Taken<TextId> {
        let id = self.small()?;
        if id as usize > texts {
            return Err(self.wrong("a text is used before it is defined"));
        }
        Ok(TextId(id))
    }

    fn flag(&mut self) -> Taken<bool> {
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("a flag is neither 0 nor 1")),
        }
    }

    fn space(&mut self) -> Taken<PoolSpace> {
        match self.number()? {
            0 => Ok(PoolSpace::Default),
            1 => Ok(PoolSpace::Collective),
            _ => Err(self.wrong("an unknown memory space")),
        }
    }

    fn purpose(&mut self) -> Taken<Purpose> {
        Ok(match self.number()? {
            0 => Purpose::Upload,
            1 => Purpose::Output,
            2 => Purpose::Temporary,
            3 => Purpose::Tuple,
            4 => Purpose::Copy,
            5 => Purpose::Constant,
            6 => Purpose::Scratch,
            _ => return Err(self.wrong("an unknown purpose")),
        })
    }

    fn skip_reason(&mut self) -> Taken<CallbackSkip> {
        let number = self.small()? as usize;
        let reason = CallbackSkip::ALL.get(number).copied();
        reason.ok_or_else(|| self.wrong("an unknown reason"))
    }

    fn estimate_source(&mut self) -> Taken<EstimateSource> {
        let number = self.number()?;
        usize::try_from(number)
            .ok()
            .and_then(|number| EstimateSource::ALL.get(number).copied())
            .ok_or_else(|| self.wrong("an unknown source of an estimate"))
    }

    fn scratch_phase(&mut self) -> Taken<ScratchPhase> {
        let number = self.number()?;
        usize::try_from(number)
            .ok()
            .and_then(|number| ScratchPhase::ALL.get(number).copied())
            .ok_or_else(|| self.wrong("an unknown phase of scratch memory"))
    }

    fn sizes(&mut self) -> Taken<ProgramSizes> {
        Ok(ProgramSizes {
            argument_bytes: self.number()?,
            output_bytes: self.number()?,
            alias_bytes: self.number()?,
            temp_bytes: self.number()?,
            constant_bytes: self.number()?,
            code_bytes: self.number()?,
        })
    }

    /// Takes the fields of the event that begins with `tag`, in relative form, where `texts` texts
    /// are defined so far. Returns `None` when the tag is not that of an event.
    pub(super) fn event(&mut self, tag: u8, texts: usize) -> Taken<Option<Event>> {
        // Struct expressions evaluate their fields in the order written: that of the file.
        Ok(Some(match tag {
            tag::PROGRAM => Event::Program {
                program: self.small()?,
                name: self.text(texts)?,
                sizes: self.sizes()?,
                devices: self.small()?,
                loaded: self.flag()?,
                compile_attempt: self.text(texts)?,
                site: self.text(texts)?,
            },
            tag::VARIANT => Event::Variant {
                program: self.small()?,
                name: self.text(texts)?,
                sizes: self.sizes()?,
            },
            tag::SCRATCH => Event::Scratch {
                program: self.small()?,
                library: self.text(texts)?,
                routine: self.text(texts)?,
                site: self.text(texts)?,
                low_bytes: self.number()?,
                high_bytes: self.number()?,
                source: self.estimate_source()?,
                phase: self.scratch_phase()?,
            },
            tag::UNLOAD => Event::Unload {
                program: self.small()?,
            },
            tag::BEGIN => Event::Begin {
                program: self.small()?,
                site: self.text(texts)?,
            },
            tag::ARGUMENT => Event::Argument {
                parameter: self.small()?,
                allocation: self.number()?,
            },
            tag::END => Event::End,
            tag::ALLOCATE => Event::Allocate {
                device: self.small()?,
                bytes: self.number()?,
                alignment: self.number()?,
                space: self.space()?,
                purpose: self.purpose()?,
                slot: self.small()?,
                site: self.text(texts)?,
            },
            tag::FREE => Event::Free {
                allocation: self.number()?,
            },
            tag::REFUSE => Event::Refuse {
                device: self.small()?,
                bytes: self.number()?,
                alignment: self.number()?,
                space: self.space()?,
                purpose: self.purpose()?,
                slot: self.small()?,
                message: self.text(texts)?,
            },
            tag::DRIVER => Event::Driver {
                device: self.small()?,
                asked: self.number()?,
                address: self.number()?,
                granted: self.number()?,
            },
            tag::OUTSIDE => Event::Outside {
                device: self.small()?,
                bytes: self.number()?,
            },
            tag::FREE_ABORTS => Event::FreeAborts {
                allocation: self.number()?,
                message: self.text(texts)?,
            },
            tag::CLEAR_PEAK => Event::ClearPeak {
                device: self.small()?,
            },
            tag::UNKNOWN_READ => Event::UnknownRead {
                site: self.text(texts)?,
                bytes: self.number()?,
            },
            tag::SHAPE_READ => Event::ShapeRead {
                site: self.text(texts)?,
                bytes: self.number()?,
            },
            tag::CALLBACK => Event::Callback {
                site: self.text(texts)?,
                calls: self.number()?,
                errors: self.number()?,
                error: self.text(texts)?,
            },
            tag::CALLBACK_SKIPPED => Event::CallbackSkipped {
                site: self.text(texts)?,
                calls: self.number()?,
                reason: self.skip_reason()?,
            },
            _ => return Ok(None),
        }))
    }
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
                assert_eq!(
                    Source::new(&out[..]).number().expect("it was just written"),
                    value
                );
            }
        }
    }

    #[test]
    fn numbers_over_64_bits_are_refused() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..],
            &[0x80; 11][..],
        ] {
            let stop = Source::new(bytes).number().expect_err("too long");
            assert!(matches!(stop, Stop::Failed(_)), "{stop:?}");
        }
    }
}
