//! How a [`ProgramMemory`] is kept in a trace: columns, one table of texts, Snappy.
//!
//! A large program has tens of thousands of buffers, and every trace holds all its programs; in
//! columns, equal values lie side by side and take a byte or two each.

use prost::Message;

use super::{Buffer, Frame, Owner, Phase, ProgramMemory, Promotion, Undonated};
use crate::error::{Error, Result};
use crate::program::texts::{TextReader, TextTable};

/// Most bytes that one program may unfold to; a program of 100,000 buffers takes a tenth of it.
const MAX_BYTES: usize = 256 << 20;

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, repeated, tag = "1")]
    texts: Vec<String>,
    #[prost(uint32, repeated, tag = "2")]
    instructions: Vec<u32>,
    #[prost(uint32, tag = "3")]
    peak_at: u32,
    #[prost(uint64, repeated, tag = "4")]
    live_bytes: Vec<u64>,
    #[prost(uint64, tag = "5")]
    padding_bytes: u64,
    #[prost(uint64, tag = "6")]
    temp_bytes: u64,
    #[prost(message, repeated, tag = "8")]
    frames: Vec<StoredFrame>,
    #[prost(message, repeated, tag = "9")]
    undonated: Vec<StoredUndonated>,
    #[prost(message, optional, tag = "10")]
    buffers: Option<Columns>,
    #[prost(message, optional, tag = "11")]
    promotion: Option<StoredPromotion>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredFrame {
    #[prost(uint32, tag = "1")]
    site: u32,
    #[prost(bool, tag = "2")]
    library: bool,
    /// From 1; 0 is none.
    #[prost(uint32, tag = "3")]
    parent: u32,
}

#[derive(Clone, PartialEq, Message)]
struct StoredUndonated {
    #[prost(uint32, tag = "1")]
    argument: u32,
    #[prost(uint32, tag = "2")]
    output: u32,
    #[prost(uint64, tag = "3")]
    bytes: u64,
    /// From 1; 0 is none.
    #[prost(uint32, tag = "4")]
    parameter: u32,
}

#[derive(Clone, PartialEq, Message)]
struct StoredPromotion {
    #[prost(uint32, tag = "1")]
    frame: u32,
    #[prost(uint32, tag = "2")]
    from: u32,
    #[prost(uint32, tag = "3")]
    to: u32,
    #[prost(uint32, tag = "4")]
    operand: u32,
    #[prost(uint64, tag = "5")]
    bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Columns {
    /// Place in [`Owner::ALL`], phase, computed again, stacked: see [`encode_flags`].
    #[prost(uint32, repeated, tag = "1")]
    flags: Vec<u32>,
    #[prost(uint64, repeated, tag = "2")]
    bytes: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    peak_bytes: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    allocation: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    offset: Vec<u64>,
    #[prost(uint32, repeated, tag = "6")]
    start: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    end: Vec<u32>,
    #[prost(uint32, repeated, tag = "8")]
    path: Vec<u32>,
    /// From 1; 0 is none.
    #[prost(uint32, repeated, tag = "9")]
    parameter: Vec<u32>,
    #[prost(uint32, repeated, tag = "10")]
    shape: Vec<u32>,
    #[prost(uint32, repeated, tag = "11")]
    instruction: Vec<u32>,
    #[prost(uint32, repeated, tag = "12")]
    operation: Vec<u32>,
    /// From 1; 0 is none.
    #[prost(uint32, repeated, tag = "13")]
    frame: Vec<u32>,
    /// From 1; 0 is none. Traces of earlier versions have no such column.
    #[prost(uint32, repeated, tag = "14")]
    replaces: Vec<u32>,
}

impl ProgramMemory {
    /// Returns the bytes that [`ProgramMemory::from_stored`] reads.
    pub fn to_stored(&self) -> Vec<u8> {
        let mut texts = TextTable::default();
        let mut columns = Columns::default();
        for buffer in &self.buffers {
            columns.flags.push(encode_flags(buffer));
            columns.bytes.push(buffer.bytes);
            columns.peak_bytes.push(buffer.peak_bytes);
            columns.allocation.push(buffer.allocation);
            columns.offset.push(buffer.offset);
            columns.start.push(buffer.start);
            columns.end.push(buffer.end);
            columns.path.push(texts.number(&buffer.path));
            columns.parameter.push(encode_option(buffer.parameter));
            columns.shape.push(texts.number(&buffer.shape));
            columns.instruction.push(texts.number(&buffer.instruction));
            columns.operation.push(texts.number(&buffer.operation));
            columns.frame.push(encode_option(buffer.frame));
            columns.replaces.push(encode_option(buffer.replaces));
        }
        let frames = self.frames.iter().map(|frame| StoredFrame {
            site: texts.number(&frame.site),
            library: frame.library,
            parent: encode_option(frame.parent),
        });
        let frames = frames.collect();
        let undonated = self.undonated.iter().map(|one| StoredUndonated {
            argument: texts.number(&one.argument),
            output: texts.number(&one.output),
            bytes: one.bytes,
            parameter: encode_option(one.parameter),
        });
        let undonated = undonated.collect();
        let promotion = self.promotion.as_ref().map(|one| StoredPromotion {
            frame: one.frame,
            from: texts.number(&one.from),
            to: texts.number(&one.to),
            operand: texts.number(&one.operand),
            bytes: one.bytes,
        });
        let instructions = self.instructions.iter().map(|name| texts.number(name)).collect();
        let stored = Stored {
            instructions,
            peak_at: self.peak_at,
            live_bytes: self.live_bytes.clone(),
            padding_bytes: self.padding_bytes,
            temp_bytes: self.temp_bytes,
            frames,
            undonated,
            promotion,
            buffers: Some(columns),
            texts: texts.into_texts(),
        };
        let bytes = stored.encode_to_vec();
        // It fails for more than 4 GiB only, which nothing can hold that is read here.
        snap::raw::Encoder::new().compress_vec(&bytes).unwrap_or_default()
    }

    /// Reads what [`ProgramMemory::to_stored`] wrote.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the bytes are something else, or contradict themselves.
    pub fn from_stored(bytes: &[u8]) -> Result<ProgramMemory> {
        let length = snap::raw::decompress_len(bytes).map_err(|error| damaged().cause(error))?;
        if length > MAX_BYTES {
            return Err(damaged());
        }
        let bytes = snap::raw::Decoder::new()
            .decompress_vec(bytes)
            .map_err(|error| damaged().cause(error))?;
        let stored = Stored::decode(bytes.as_slice()).map_err(|error| damaged().cause(error))?;
        let texts = TextReader::new(&stored.texts);
        let text = |number: u32| texts.get(number).map(str::to_owned).ok_or_else(damaged);
        let frame = |(at, frame): (usize, &StoredFrame)| {
            // A parent comes before its child, so that every stack ends.
            (frame.parent as usize <= at).then_some(()).ok_or_else(damaged)?;
            Ok(Frame {
                site: text(frame.site)?,
                library: frame.library,
                parent: decode_option(frame.parent),
            })
        };
        let frames: Vec<Frame> =
            stored.frames.iter().enumerate().map(frame).collect::<Result<_>>()?;
        let undonated = stored.undonated.iter().map(|one| {
            Ok(Undonated {
                argument: text(one.argument)?,
                output: text(one.output)?,
                bytes: one.bytes,
                parameter: decode_option(one.parameter),
            })
        });
        let promotion = stored.promotion.map(|one| {
            ((one.frame as usize) < frames.len()).then_some(()).ok_or_else(damaged)?;
            Ok(Promotion {
                frame: one.frame,
                from: text(one.from)?,
                to: text(one.to)?,
                operand: text(one.operand)?,
                bytes: one.bytes,
            })
        });
        let columns = stored.buffers.unwrap_or_default();
        let count = columns.flags.len();
        let buffer = |at: usize| -> Result<Buffer> {
            let frame = decode_option(cell(&columns.frame, at)?);
            if frame.is_some_and(|frame| frame as usize >= frames.len()) {
                return Err(damaged());
            }
            Ok(Buffer {
                bytes: cell(&columns.bytes, at)?,
                peak_bytes: cell(&columns.peak_bytes, at)?,
                allocation: cell(&columns.allocation, at)?,
                offset: cell(&columns.offset, at)?,
                start: cell(&columns.start, at)?,
                end: cell(&columns.end, at)?,
                path: text(cell(&columns.path, at)?)?,
                parameter: decode_option(cell(&columns.parameter, at)?),
                shape: text(cell(&columns.shape, at)?)?,
                instruction: text(cell(&columns.instruction, at)?)?,
                operation: text(cell(&columns.operation, at)?)?,
                frame,
                replaces: columns.replaces.get(at).copied().and_then(decode_option),
                ..decode_flags(columns.flags[at]).ok_or_else(damaged)?
            })
        };
        let buffers = (0..count).map(buffer).collect::<Result<_>>()?;
        let instructions =
            stored.instructions.iter().map(|name| text(*name)).collect::<Result<_>>()?;
        Ok(ProgramMemory {
            buffers,
            instructions,
            peak_at: stored.peak_at,
            live_bytes: stored.live_bytes,
            padding_bytes: stored.padding_bytes,
            temp_bytes: stored.temp_bytes,
            undonated: undonated.collect::<Result<_>>()?,
            promotion: promotion.transpose()?,
            frames,
        })
    }
}

fn damaged() -> Error {
    Error::invalid_file("the trace's record of a program's buffers is damaged")
}

fn cell<T: Copy>(column: &[T], at: usize) -> Result<T> {
    column.get(at).copied().ok_or_else(damaged)
}

fn encode_option(number: Option<u32>) -> u32 {
    number.map_or(0, |number| number.saturating_add(1))
}

fn decode_option(number: u32) -> Option<u32> {
    number.checked_sub(1)
}

const PHASES: [Phase; 3] = [Phase::Outside, Phase::Forward, Phase::Backward];

/// Packs the small fields of a buffer into a number: made by a collective in bit 8, owner from bit 4, stacked in
/// bit 3, computed again in bit 2, phase below.
fn encode_flags(buffer: &Buffer) -> u32 {
    let mut owners = Owner::ALL.iter();
    let owner = owners.position(|owner| *owner == buffer.owner).unwrap_or(0);
    let mut phases = PHASES.iter();
    let phase = phases.position(|phase| *phase == buffer.phase).unwrap_or(0);
    u32::from(buffer.collective) << 8
        | (owner as u32) << 4
        | u32::from(buffer.stacked) << 3
        | u32::from(buffer.rematerialized) << 2
        | phase as u32
}

/// Returns a buffer with the fields that [`encode_flags`] packs.
fn decode_flags(flags: u32) -> Option<Buffer> {
    Some(Buffer {
        owner: *Owner::ALL.get((flags >> 4 & 15) as usize)?,
        phase: *PHASES.get((flags & 3) as usize)?,
        rematerialized: flags & 4 != 0,
        stacked: flags & 8 != 0,
        collective: flags & 256 != 0,
        ..Buffer::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> ProgramMemory {
        let buffers = Owner::ALL.iter().zip(0u32..).map(|(owner, number)| Buffer {
            owner: *owner,
            bytes: 1 << number,
            peak_bytes: u64::from(number),
            allocation: number,
            offset: 256 * u64::from(number),
            start: number,
            end: if number == 0 { u32::MAX } else { number + 1 },
            path: format!("state['{number}']"),
            parameter: (number % 2 == 0).then_some(number),
            shape: "f32[2]".to_owned(),
            instruction: format!("fusion.{number}"),
            operation: "jit(f)/mul".to_owned(),
            frame: (number > 1).then_some(number % 2),
            replaces: (number % 3 == 1).then_some(number),
            phase: PHASES[number as usize % 3],
            rematerialized: number % 3 == 0,
            stacked: number % 4 == 0,
            collective: number % 5 == 0,
        });
        ProgramMemory {
            buffers: buffers.collect(),
            instructions: vec!["fusion.1".to_owned(), "fusion.2".to_owned()],
            peak_at: 1,
            live_bytes: vec![3, 5],
            padding_bytes: 7,
            temp_bytes: 12,
            frames: vec![
                Frame { site: "a.py:1 (f)".to_owned(), library: false, parent: None },
                Frame { site: "b.py:2 (g)".to_owned(), library: true, parent: Some(0) },
            ],
            undonated: vec![Undonated {
                argument: "x".to_owned(),
                output: "y".to_owned(),
                bytes: 9,
                parameter: Some(2),
            }],
            promotion: Some(Promotion {
                frame: 1,
                from: "f32".to_owned(),
                to: "f64".to_owned(),
                operand: "`x`".to_owned(),
                bytes: 11,
            }),
        }
    }

    #[test]
    fn what_is_stored_comes_back() {
        let memory = memory();
        assert_eq!(ProgramMemory::from_stored(&memory.to_stored()).expect("just stored"), memory);
        let empty = ProgramMemory::default();
        assert_eq!(ProgramMemory::from_stored(&empty.to_stored()).expect("just stored"), empty);
    }

    #[test]
    fn damaged_bytes_are_refused_without_panic() {
        let stored = memory().to_stored();
        for end in 0..stored.len() {
            // A shorter file may by chance be a whole message; it must not be taken for this one.
            assert_ne!(ProgramMemory::from_stored(&stored[..end]).ok(), Some(memory()));
        }
        let mut plain = snap::raw::Decoder::new().decompress_vec(&stored).expect("just packed");
        for at in 0..plain.len() {
            let kept = std::mem::replace(&mut plain[at], 0xff);
            let packed = snap::raw::Encoder::new().compress_vec(&plain).expect("short");
            // It may be read as something else; what matters is that it ends.
            drop(ProgramMemory::from_stored(&packed));
            plain[at] = kept;
        }
    }

    #[test]
    fn a_stack_that_goes_round_in_circles_is_refused() {
        let stored = Stored {
            frames: vec![StoredFrame { parent: 1, ..StoredFrame::default() }],
            ..Stored::default()
        };
        let packed =
            snap::raw::Encoder::new().compress_vec(&stored.encode_to_vec()).expect("short");
        assert!(ProgramMemory::from_stored(&packed).is_err());
    }
}
