//! The filters there are, by the numbers that The HDF Group gives out.

use vramfit_base::Result;

use super::nbit::NBit;
use super::scale_offset::ScaleOffset;
use super::{DecodeError, Decoders, bitshuffle, blosc, fletcher32, lz4, lzf, shuffle, unsupported};
use crate::hdf5::FilterStep;

/// A filter with what it needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Deflate,
    /// Bytes of the elements that are taken apart.
    Shuffle(usize),
    Fletcher32,
    NBit(NBit),
    ScaleOffset(ScaleOffset),
    Lzf,
    Blosc,
    Lz4,
    /// Bytes of an element, elements in a block, and what compresses the blocks.
    Bitshuffle(usize, usize, bitshuffle::Codec),
    Zstd,
}

impl Filter {
    /// Understands one step of a pipeline over elements of `element` bytes.
    pub(super) fn new(step: &FilterStep, element: usize) -> Result<Filter> {
        let parameter = |place: usize| step.parameters.get(place).map(|&number| number as usize);
        Ok(match step.id {
            1 => Filter::Deflate,
            2 => Filter::Shuffle(parameter(0).unwrap_or(element).max(1)),
            3 => Filter::Fletcher32,
            5 => match NBit::new(&step.parameters, element) {
                Some(filter) => Filter::NBit(filter),
                None => return Err(unsupported(step, " for this datatype")),
            },
            6 => match ScaleOffset::new(&step.parameters) {
                Some(filter) => Filter::ScaleOffset(filter),
                None => return Err(unsupported(step, " for floating-point numbers")),
            },
            32000 => Filter::Lzf,
            32001 => Filter::Blosc,
            32004 => Filter::Lz4,
            32008 => {
                // The first two parameters are the plugin's version.
                let codec = match parameter(4).unwrap_or(0) {
                    0 => bitshuffle::Codec::None,
                    2 => bitshuffle::Codec::Lz4,
                    3 => bitshuffle::Codec::Zstd,
                    codec => return Err(unsupported(step, &format!(" with the codec {codec}"))),
                };
                let size = parameter(2).unwrap_or(element).max(1);
                Filter::Bitshuffle(size, parameter(3).unwrap_or(0), codec)
            }
            32015 => Filter::Zstd,
            _ => return Err(unsupported(step, "")),
        })
    }

    /// Returns how long the result of the filter is, where the length of its input decides that.
    pub(super) fn encoded_length(&self, before: usize) -> Option<usize> {
        match self {
            Filter::Shuffle(_) | Filter::Bitshuffle(_, _, bitshuffle::Codec::None) => Some(before),
            Filter::Fletcher32 => Some(before + fletcher32::LENGTH),
            _ => None,
        }
    }

    /// Undoes the filter and returns how many bytes of `out` were made.
    pub(super) fn decode(
        &self,
        input: &[u8],
        out: &mut [u8],
        decoders: &mut Decoders,
    ) -> std::result::Result<usize, DecodeError> {
        let Decoders { deflate, zstd, block } = decoders;
        match self {
            Filter::Deflate => deflate.decode(input, out),
            Filter::Shuffle(size) => shuffle::decode(input, out, *size),
            Filter::Fletcher32 => fletcher32::decode(input, out),
            Filter::NBit(filter) => filter.decode(input, out),
            Filter::ScaleOffset(filter) => filter.decode(input, out),
            Filter::Lzf => lzf::decode(input, out),
            Filter::Blosc => blosc::decode(input, out, deflate, zstd, block),
            Filter::Lz4 => lz4::decode(input, out),
            Filter::Bitshuffle(size, count, codec) => {
                bitshuffle::decode(input, out, *size, *count, *codec, zstd, block)
            }
            Filter::Zstd => zstd.decode(input, out),
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
