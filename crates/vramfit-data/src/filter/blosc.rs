//! Blosc 1: a header, the places of blocks, and blocks of one or several compressed streams, with
//! bytes or bits shuffled before.

use super::bitshuffle;
use super::byte_reader::ByteReader;
use super::deflate::DeflateDecoder;
use super::{DecodeError, frame_output, grow_to, lz4, shuffle, zstd};

const HEADER: usize = 16;
/// What the flags say.
const SHUFFLED: u8 = 0x01;
const STORED: u8 = 0x02;
const BITS_SHUFFLED: u8 = 0x04;
const NOT_SPLIT: u8 = 0x10;
/// Elements larger than this are never split into streams.
const MAX_SPLITS: usize = 16;
/// Nor are blocks with streams shorter than this.
const MIN_SPLIT_STREAM_BYTES: usize = 128;

/// The codecs, by the three highest bits of the flags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Codec {
    BloscLz,
    Lz4,
    Snappy,
    Zlib,
    Zstd,
}

/// Decompresses and returns how many bytes were made.
pub(super) fn decode(
    input: &[u8],
    out: &mut [u8],
    deflate: &mut DeflateDecoder,
    unpacker: &mut zstd::ZstdDecoder,
    shuffled: &mut Vec<u8>,
) -> Result<usize, DecodeError> {
    let mut frame = ByteReader::new(input);
    let version = frame.byte()?;
    match version {
        1 | 2 => {}
        // Those of Blosc 2.
        3..=5 => return Err(DecodeError::unsupported(format!("blosc format {version}"))),
        _ => {
            return Err(DecodeError::damaged(format!("blosc format {version} does not exist")));
        }
    }
    frame.byte()?;
    let flags = frame.byte()?;
    let size = usize::from(frame.byte()?).max(1);
    let length = frame.le_u32()? as usize;
    let block = frame.le_u32()? as usize;
    let compressed = frame.le_u32()? as usize;
    if compressed > input.len() {
        return Err(DecodeError::damaged(format!(
            "its header gives {compressed} compressed bytes, but {} are stored",
            input.len()
        )));
    }
    let out = frame_output(out, length)?;
    if flags & STORED != 0 {
        out.copy_from_slice(frame.take(length)?);
        return Ok(length);
    }
    if block == 0 && length > 0 {
        return Err(DecodeError::damaged("its block size is 0"));
    }
    let codec = match flags >> 5 {
        0 => Codec::BloscLz,
        1 => Codec::Lz4,
        2 => Codec::Snappy,
        3 => Codec::Zlib,
        4 => Codec::Zstd,
        codec => return Err(DecodeError::unsupported(format!("blosc codec {codec}"))),
    };
    for place in out.chunks_mut(block.max(1)) {
        let start = frame.le_u32()? as usize;
        let streams = input.get(start.max(HEADER)..).unwrap_or_default();
        let is_last = place.len() < block;
        let split = flags & NOT_SPLIT == 0
            && !is_last
            && size <= MAX_SPLITS
            && block / size >= MIN_SPLIT_STREAM_BYTES
            && block.is_multiple_of(size);
        let parts = if split { size } else { 1 };
        let bits = flags & BITS_SHUFFLED != 0 && block >= size;
        let bytes = flags & SHUFFLED != 0 && size > 1;
        if !bits && !bytes {
            unpack(streams, place, parts, codec, deflate, unpacker)?;
            continue;
        }
        let shuffled = grow_to(shuffled, place.len());
        unpack(streams, shuffled, parts, codec, deflate, unpacker)?;
        if bytes {
            shuffle::decode(shuffled, place, size)?;
        } else {
            // A block that has no multiple of eight elements is left as it is.
            let whole = if place.len() / size % 8 == 0 { place.len() / size * size } else { 0 };
            bitshuffle::unshuffle(&shuffled[..whole], &mut place[..whole], size);
            place[whole..].copy_from_slice(&shuffled[whole..]);
        }
    }
    Ok(length)
}

/// Decompresses the streams of one block.
fn unpack(
    streams: &[u8],
    out: &mut [u8],
    parts: usize,
    codec: Codec,
    deflate: &mut DeflateDecoder,
    unpacker: &mut zstd::ZstdDecoder,
) -> Result<(), DecodeError> {
    let mut frame = ByteReader::new(streams);
    let expected = out.len() / parts;
    if expected == 0 {
        return Ok(());
    }
    for place in out.chunks_exact_mut(expected) {
        let compressed = frame.le_u32()? as usize;
        let bytes = frame.take(compressed)?;
        if compressed == expected {
            place.copy_from_slice(bytes);
            continue;
        }
        let made = match codec {
            Codec::Lz4 => {
                lz4::raw(bytes, place)?;
                expected
            }
            Codec::Snappy => unpack_snappy(bytes, place)?,
            Codec::Zlib => deflate.decode(bytes, place)?,
            Codec::Zstd => unpacker.decode(bytes, place)?,
            Codec::BloscLz => blosclz(bytes, place)?,
        };
        if made != expected {
            return Err(DecodeError::damaged(format!(
                "a blosc stream decodes to {made} bytes, expected {expected}"
            )));
        }
    }
    Ok(())
}

/// Decompresses a raw Snappy stream. Returns how many bytes were made.
fn unpack_snappy(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let unpacked = snap::raw::Decoder::new().decompress(input, out);
    unpacked.map_err(|error| DecodeError::damaged(format!("a snappy stream is damaged: {error}")))
}

/// BloscLZ, Blosc's own codec, which is FastLZ with longer distances. Returns how many bytes were made.
fn blosclz(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    /// Distances from here on have two bytes of their own.
    const FAR_DISTANCE: usize = 8191;
    let mut frame = ByteReader::new(input);
    let too_long = || DecodeError::damaged("a blosclz stream decodes to too many bytes");
    let mut to = 0;
    // The first control byte is always one of literals.
    let mut control = match frame.rest().is_empty() {
        true => return Ok(0),
        false => usize::from(frame.byte()? & 31),
    };
    loop {
        if control < 32 {
            let literal = frame.take(control + 1)?;
            let place = out.get_mut(to..to + literal.len()).ok_or_else(too_long)?;
            place.copy_from_slice(literal);
            to += literal.len();
        } else {
            let mut length = (control >> 5) - 1;
            let high = (control & 31) << 8;
            if length == 6 {
                loop {
                    let more = usize::from(frame.byte()?);
                    length += more;
                    if more != 255 {
                        break;
                    }
                    if length > out.len() {
                        return Err(too_long());
                    }
                }
            }
            let low = usize::from(frame.byte()?);
            let mut back = high + low;
            if low == 255 && high == 31 << 8 {
                back = usize::from(frame.byte()?) << 8;
                back += usize::from(frame.byte()?) + FAR_DISTANCE;
            }
            let length = length + 3;
            let start = to.checked_sub(back + 1);
            let start = start
                .ok_or_else(|| "a blosclz stream refers to data before its start".to_owned())?;
            if to + length > out.len() {
                return Err(too_long());
            }
            for at in 0..length {
                out[to + at] = out[start + at];
            }
            to += length;
        }
        if frame.rest().is_empty() {
            return Ok(to);
        }
        control = usize::from(frame.byte()?);
    }
}
