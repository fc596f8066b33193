//! The record container that XLA writes executables into (a Riegeli file).
//!
//! JAX 0.10.2 and 0.11 put the executable into one, inside an ordinary message that holds it and
//! its compile options; 0.12 puts that message into one as well. What is there is asked of the bytes.
//!
//! Only what XLA writes is read: simple record chunks, compressed with Snappy or not at all.
//! Layout, from the published description of the format: blocks of 64 KiB that each begin with a
//! 24-byte header, and inside them chunks of a 40-byte header and data. The first record of XLA's
//! files is a manifest that says what the following records are.

use prost::Message;

use super::proto::SplitProtoManifest;
use crate::error::{Error, Result};

/// First bytes of every such file (the hash of an empty previous block).
const SIGNATURE: [u8; 8] = [0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f];
const BLOCK: usize = 1 << 16;
const BLOCK_HEADER: usize = 24;
const CHUNK_HEADER: usize = 40;
/// No executable is near this size; it bounds what a corrupt length can make us allocate.
const MAX_DECODED: u64 = 8 << 30;

/// Returns `true` if `bytes` are such a file.
pub(super) fn is_executable_container(bytes: &[u8]) -> bool {
    bytes.starts_with(&SIGNATURE)
}

/// Returns the bytes of the message the container holds.
///
/// XLA cuts large fields (the executable; its assembly text, machine code, constants) out into
/// records of their own. Of those the one numbered `field` is put back, where there is one; the
/// others are left out, as nothing here reads them.
///
/// # Errors
/// [`crate::ErrorKind::InvalidFile`] when the container is not as described above.
pub(super) fn message_bytes(bytes: &[u8], field: Option<u32>) -> Result<Vec<u8>> {
    let records = records(bytes)?;
    let (first, rest) = records.split_first().ok_or_else(|| damaged("holds no record"))?;
    let manifest = SplitProtoManifest::decode(first.as_slice())
        .map_err(|error| damaged("has no manifest").cause(error))?;
    if manifest.records.len() != rest.len() {
        return Err(damaged("has a manifest that does not match its records"));
    }
    // Protobuf messages are merged by concatenation.
    let mut message = Vec::new();
    for (described, record) in manifest.records.iter().zip(rest) {
        match &described.field_override {
            None => message.extend_from_slice(record),
            Some(cut) => {
                if let Some(field) = field.filter(|_| cut.top_level_field() == field) {
                    prost::encoding::bytes::encode(field, record, &mut message);
                }
            }
        }
    }
    Ok(message)
}

fn damaged(what: &str) -> Error {
    Error::invalid_file(format!("the serialized executable {what}"))
}

/// Returns all records in order.
fn records(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let stream: Vec<u8> =
        bytes.chunks(BLOCK).flat_map(|block| block.iter().skip(BLOCK_HEADER).copied()).collect();
    let mut records = Vec::new();
    let mut rest = stream.as_slice();
    while rest.len() >= CHUNK_HEADER {
        let header = take(&mut rest, CHUNK_HEADER as u64)?;
        let data = take(&mut rest, u64_at(header, 8))?;
        let count = u64_at(header, 24) >> 8;
        match header[24] {
            b'r' => simple_chunk(data, count, &mut records)?,
            b's' | b'm' | b'p' => {} // signature, metadata, padding
            _ => return Err(damaged("uses a chunk type that XLA is not known to write")),
        }
    }
    Ok(records)
}

/// Cuts this many bytes off the front.
fn take<'a>(bytes: &mut &'a [u8], count: u64) -> Result<&'a [u8]> {
    let count = usize::try_from(count).map_err(|_| damaged("is too large"))?;
    let (taken, rest) = bytes.split_at_checked(count).ok_or_else(|| damaged("is truncated"))?;
    *bytes = rest;
    Ok(taken)
}

/// Reads a simple chunk: one buffer of record sizes, one of the records end to end.
fn simple_chunk(data: &[u8], count: u64, records: &mut Vec<Vec<u8>>) -> Result<()> {
    let (&compression, mut rest) = data.split_first().ok_or_else(|| damaged("is truncated"))?;
    let sizes_length = varint(&mut rest)?;
    let sizes = decompress(compression, take(&mut rest, sizes_length)?)?;
    let values = decompress(compression, rest)?;
    let (mut sizes, mut values) = (sizes.as_slice(), values.as_slice());
    for _ in 0..count {
        let size = varint(&mut sizes)?;
        records.push(take(&mut values, size)?.to_vec());
    }
    Ok(())
}

fn decompress(compression: u8, mut bytes: &[u8]) -> Result<Vec<u8>> {
    match compression {
        0 => Ok(bytes.to_vec()),
        b's' => {
            if varint(&mut bytes)? > MAX_DECODED {
                return Err(damaged("is too large"));
            }
            snap::raw::Decoder::new()
                .decompress_vec(bytes)
                .map_err(|error| damaged("cannot be decompressed").cause(error))
        }
        _ => Err(damaged("uses a compression that XLA is not known to use")),
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(damaged("has a number that is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_and_foreign_files_are_refused_without_panic() {
        let mut bytes = SIGNATURE.to_vec();
        bytes.resize(BLOCK_HEADER, 0);
        assert!(message_bytes(&bytes, None).is_err(), "no records");
        for kind in [b'r', b'x'] {
            let mut chunk = bytes.clone();
            chunk.resize(BLOCK_HEADER + CHUNK_HEADER, 0);
            chunk[BLOCK_HEADER + 8] = 255;
            chunk[BLOCK_HEADER + 24] = kind;
            assert!(message_bytes(&chunk, None).is_err());
        }
    }
}
