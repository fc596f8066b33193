//! The filters there are, by the numbers that The HDF Group gives out.

use vramfit_core::Result;

use super::{Fault, Tools, shuffle, unsupported};
use crate::hdf5::FilterStep;

/// A filter with what it needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Deflate,
    /// Bytes of the elements that are taken apart.
    Shuffle(usize),
}

impl Filter {
    /// Understands one step of a pipeline over chunks of `chunk_bytes`.
    pub(super) fn new(step: &FilterStep, element: usize, _chunk_bytes: usize) -> Result<Filter> {
        let parameter = |place: usize| step.parameters.get(place).copied();
        Ok(match step.id {
            1 => Filter::Deflate,
            2 => Filter::Shuffle(parameter(0).map_or(element, |size| size as usize).max(1)),
            _ => return Err(unsupported(step, "")),
        })
    }

    /// Returns how long the result of the filter is, where the length of its input decides that.
    pub(super) fn encoded_length(&self, before: usize) -> Option<usize> {
        match self {
            Filter::Shuffle(_) => Some(before),
            Filter::Deflate => None,
        }
    }

    /// Undoes the filter and returns how many bytes of `out` were made.
    pub(super) fn decode(
        &self,
        input: &[u8],
        out: &mut [u8],
        tools: &mut Tools,
    ) -> std::result::Result<usize, Fault> {
        match self {
            Filter::Deflate => tools.deflate.decode(input, out),
            Filter::Shuffle(size) => shuffle::decode(input, out, *size),
        }
    }
}

/// Returns what a filter is called.
pub(super) fn name(id: u16) -> Option<&'static str> {
    Some(match id {
        1 => "deflate",
        2 => "shuffle",
        3 => "fletcher32",
        4 => "szip",
        5 => "nbit",
        6 => "scale-offset",
        307 => "bzip2",
        32000 => "lzf",
        32001 => "blosc",
        32004 => "lz4",
        32008 => "bitshuffle",
        32013 => "zfp",
        32015 => "zstd",
        32017 => "sz",
        32018 => "fcidecomp",
        32024 => "sz3",
        32026 => "blosc2",
        32028 => "sperr",
        32033 => "htj2k",
        _ => return None,
    })
}
