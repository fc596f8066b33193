//! Records of a trace that are no events: notes, the footer, texts.

use std::io;

use super::header::Footer;
use super::note::{MAX_NOTE_BYTES, Note};
use super::reader::TraceEnd;
use super::wire::{MAX_JSON_BYTES, MAX_TEXT_BYTES, put_body, tag};

/// Returns what to put in the place of everything behind the records of a trace, so that it holds
/// another note: the note, the footer where the trace has one, and a checksum.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a note of more than 64 KiB.
pub fn end_with_note(end: TraceEnd, note: &Note, footer: Option<&Footer>) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    put_note(&mut out, note)?;
    if let Some(footer) = footer {
        put_footer(&mut out, footer)?;
    }
    out.push(tag::CHECKSUM);
    let mut crc = end.crc;
    crc.add(&out);
    out.extend_from_slice(&crc.value().to_le_bytes());
    Ok(out)
}

pub(super) fn put_note(out: &mut Vec<u8>, note: &Note) -> io::Result<()> {
    let body = serde_json::to_vec(note).unwrap_or_default();
    if body.len() > MAX_NOTE_BYTES {
        return Err(invalid_input("a note is longer than a trace can hold"));
    }
    put_body(out, note.tag(), &body);
    Ok(())
}

/// Says what cannot be written.
pub(super) fn invalid_input(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

pub(super) fn put_footer(out: &mut Vec<u8>, footer: &Footer) -> io::Result<()> {
    put_body(out, tag::FOOTER, &to_json(footer)?);
    Ok(())
}

/// Returns the beginning of a text, as much of it as a trace may hold.
pub(super) fn truncate(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(super) fn to_json(value: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(value)?;
    if text.len() > MAX_JSON_BYTES {
        return Err(invalid_input("the header is too large"));
    }
    Ok(text)
}
