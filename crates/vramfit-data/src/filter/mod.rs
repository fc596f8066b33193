//! Decoding the filters of a chunk.
//!
//! One file per filter. Each decodes its input into a buffer of a known length; a
//! filter that would produce more, or less, returns an error. Nothing is allocated per
//! chunk: what a thread needs in between is in its [`Scratch`].

mod bit_reader;
mod bitshuffle;
mod blosc;
mod byte_reader;
mod byte_unshuffle;
mod deflate;
pub(crate) mod fletcher32;
mod kinds;
mod lz4;
mod lzf;
mod nbit;
mod scale_offset;
mod shuffle;
mod zstd;

use std::fmt;

use vramfit_base::{Error, Result};

use crate::hdf5::FilterStep;
use kinds::Filter;

/// The command that rewrites a file with standard filters, for hints.
pub(crate) const REPACK: &str = "`h5repack -f SHUF -f GZIP=4 old.h5 new.h5`";

/// Why a chunk cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// Its bytes are invalid for the filter.
    Damaged(String),
    /// It uses the named feature, which is not supported.
    Unsupported(String),
}

impl DecodeError {
    pub(crate) fn damaged(what: impl Into<String>) -> DecodeError {
        DecodeError::Damaged(what.into())
    }

    fn unsupported(what: impl Into<String>) -> DecodeError {
        DecodeError::Unsupported(what.into())
    }
}

impl From<String> for DecodeError {
    fn from(what: String) -> DecodeError {
        DecodeError::Damaged(what)
    }
}

/// The buffers and decoders of one thread, reused for all chunks.
#[derive(Default)]
pub struct Scratch {
    /// A chunk as it is stored.
    pub(crate) stored: Vec<u8>,
    /// A chunk as it was before it was stored.
    pub(crate) decoded: Vec<u8>,
    /// Between two filters.
    between: [Vec<u8>; 2],
    decoders: Decoders,
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// The states of decompressors, and a buffer for one block.
#[derive(Default)]
struct Decoders {
    deflate: deflate::DeflateDecoder,
    zstd: zstd::ZstdDecoder,
    block: Vec<u8>,
}

/// The filters of a dataset, in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    filters: Vec<Filter>,
}

impl Pipeline {
    /// Prepares the filters of a dataset.
    ///
    /// # Errors
    ///
    /// `unsupported-feature` when a filter cannot be decoded.
    pub(crate) fn new(steps: &[FilterStep], element: usize) -> Result<Pipeline> {
        let filters = steps.iter().map(|step| Filter::new(step, element));
        Ok(Pipeline { filters: filters.collect::<Result<_>>()? })
    }

    /// Whether chunks are stored without filters.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Decodes `stored` into `out`, which is as long as a chunk. Only the first `used` bytes are in the dataset; a chunk may
    /// have been stored without those behind them, which are zeros then.
    ///
    /// # Errors
    ///
    /// The reason why the bytes cannot be decoded.
    pub(crate) fn decode(
        &self,
        stored: &[u8],
        mask: u32,
        out: &mut [u8],
        used: usize,
        between: &mut ScratchBuffers<'_>,
    ) -> std::result::Result<(), DecodeError> {
        let mut applied = self.filters.iter().enumerate().filter(|(place, _)| {
            // Masks have 32 bits, and no pipeline has more filters.
            mask.checked_shr(*place as u32).unwrap_or(0) & 1 == 0
        });
        // The length before each filter: unknown after one that compresses.
        let mut lengths = [Some(0); 33];
        let mut steps = [None; 32];
        let mut count = 0;
        lengths[0] = Some(out.len());
        for (_, filter) in applied.by_ref() {
            let (Some(step), Some(&before)) = (steps.get_mut(count), lengths.get(count)) else {
                return Err(DecodeError::damaged("it has more than 32 filters"));
            };
            *step = Some(filter);
            count += 1;
            lengths[count] = before.and_then(|before| filter.encoded_length(before));
        }
        // How much of an edge chunk was stored is known once it is decoded.
        let is_whole = used == out.len();
        let fits = |length: usize| stored.len() == length || !is_whole && stored.len() < length;
        if let Some(length) = lengths[count].filter(|length| !fits(*length)) {
            return Err(DecodeError::damaged(format!(
                "it has {} stored bytes, expected {length}",
                stored.len()
            )));
        }
        let made = between.run(&steps[..count], &lengths, is_whole, stored, out)?;
        match is_whole {
            true => exactly(made, used)?,
            false if made < used => {
                let all = out.len();
                return Err(DecodeError::damaged(format!(
                    "it decodes to {made} bytes, expected {used} to {all}"
                )));
            }
            false => out[made..].fill(0),
        }
        Ok(())
    }
}

/// The part of [`Scratch`] that decoding needs besides its input.
pub(crate) struct ScratchBuffers<'a> {
    buffers: &'a mut [Vec<u8>; 2],
    decoders: &'a mut Decoders,
}

impl Scratch {
    /// Splits off the stored and the decoded chunk, for decoding one into the other.
    pub(crate) fn parts(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>, ScratchBuffers<'_>) {
        let between = ScratchBuffers { buffers: &mut self.between, decoders: &mut self.decoders };
        (&mut self.stored, &mut self.decoded, between)
    }
}

impl ScratchBuffers<'_> {
    fn run(
        &mut self,
        steps: &[Option<&Filter>],
        lengths: &[Option<usize>; 33],
        is_whole: bool,
        stored: &[u8],
        out: &mut [u8],
    ) -> std::result::Result<usize, DecodeError> {
        if steps.is_empty() {
            out[..stored.len()].copy_from_slice(stored);
            return Ok(stored.len());
        }
        // Space for what a filter adds to incompressible data; a valid chunk does not need more.
        let most = out.len() + out.len() / 16 + 4096;
        let (first, second) = self.buffers.split_at_mut(1);
        let (mut from, mut to) = (&mut first[0], &mut second[0]);
        let mut length = 0;
        for (place, filter) in steps.iter().enumerate().rev() {
            let Some(filter) = filter else { continue };
            let input: &[u8] = if place + 1 == steps.len() { stored } else { &from[..length] };
            if place == 0 {
                return filter.decode(input, out, self.decoders);
            }
            let room = grow_to(to, lengths[place].unwrap_or(most));
            let made = filter.decode(input, room, self.decoders)?;
            if let Some(expected) = lengths[place].filter(|_| is_whole) {
                exactly(made, expected)?;
            }
            length = made;
            std::mem::swap(&mut from, &mut to);
        }
        Ok(length)
    }
}

/// Returns the beginning of a buffer, which is made longer if need be.
pub(crate) fn grow_to(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    &mut buffer[..length]
}

/// Returns the part of `out` that a frame fills, as its header says.
fn frame_output(out: &mut [u8], length: usize) -> std::result::Result<&mut [u8], DecodeError> {
    let expected = out.len();
    out.get_mut(..length).ok_or_else(|| {
        DecodeError::damaged(format!("its header gives {length} bytes, expected {expected}"))
    })
}

fn exactly(made: usize, expected: usize) -> std::result::Result<(), DecodeError> {
    match made == expected {
        true => Ok(()),
        false => {
            Err(DecodeError::damaged(format!("it decodes to {made} bytes, expected {expected}")))
        }
    }
}

/// Returns a filter's name with its number.
pub(crate) fn describe(step: &FilterStep) -> String {
    match kinds::name(step.id) {
        Some(name) => name.to_owned(),
        None if step.name.is_empty() => format!("filter {}", step.id),
        None => format!("filter {} ({})", step.id, step.name),
    }
}

fn unsupported(step: &FilterStep, why: &str) -> Error {
    let name = kinds::name(step.id).unwrap_or(match step.name.as_str() {
        "" => "of no known name",
        name => name,
    });
    Error::unsupported_feature(format!("filter {} ({name}) is not supported{why}", step.id))
        .hint(format!("rewrite the file where the filter is installed: {REPACK}"))
}
