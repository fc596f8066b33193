//! How a trace lies in bytes: tags, variable-length integers, checksums, single events. They are
//! decoded in [`super::decoder`]. What the records mean together (history, repeats) is for
//! [`super::writer`] and [`super::reader`]; `docs/reference/trace-format.md` has it all.

use super::event::{Event, TextId};
use crate::program::ProgramSizes;

/// What every trace begins with; the version and a line feed follow.
pub(super) const MAGIC: &[u8] = b"vramfit trace ";
/// The version this code writes, and the only one it reads.
pub(super) const VERSION: &[u8] = b"2";
/// Longest header line and longest footer in bytes. A command line may be 2 MiB on Linux.
pub(super) const MAX_JSON_BYTES: usize = 16 << 20;
/// Longest text in bytes; an out-of-memory dump of 10 000 chunks is below 1 MiB.
pub(super) const MAX_TEXT_BYTES: usize = 4 << 20;
/// Most bytes that a trace keeps of one program's buffers; 100,000 buffers take about a twentieth.
pub(super) const MAX_MEMORY_BYTES: usize = 64 << 20;
/// Longest warning of the compiler in bytes, with its program and its source.
pub(super) const MAX_WARNING_BYTES: usize = 64 << 10;
/// Longest record of a run's settings in bytes.
pub(super) const MAX_SETTINGS_BYTES: usize = 4 << 20;
/// Longest record of how long a program takes, in bytes.
pub(super) const MAX_TIME_BYTES: usize = 1 << 20;
/// Longest record of a program whose values were not computed, in bytes.
pub(super) const MAX_NOT_COMPUTED_BYTES: usize = 64 << 10;
/// Most events a trace may expand to. Each is replayed, some millions a second: a file of a few bytes
/// must not take hours.
pub(super) const MAX_EXPANDED_EVENTS: u64 = 1 << 31;

/// First byte of each record. Zero is no record, so that a hole in a file is noticed.
pub(super) mod tag {
    pub(crate) const TEXT: u8 = 1;
    pub(crate) const PROGRAM: u8 = 2;
    pub(crate) const UNLOAD: u8 = 3;
    pub(crate) const BEGIN: u8 = 4;
    pub(crate) const END: u8 = 5;
    pub(crate) const ALLOCATE: u8 = 6;
    pub(crate) const FREE: u8 = 7;
    pub(crate) const ALLOCATION_FAILURE: u8 = 8;
    pub(crate) const DRIVER: u8 = 9;
    pub(crate) const OUTSIDE_POOL: u8 = 10;
    pub(crate) const UNKNOWN_READ: u8 = 11;
    pub(crate) const REPEAT: u8 = 12;
    pub(crate) const CHECKSUM: u8 = 13;
    pub(crate) const FOOTER: u8 = 14;
    pub(crate) const CLEAR_PEAK: u8 = 15;
    pub(crate) const FREE_ABORTS: u8 = 16;
    pub(crate) const VARIANT: u8 = 17;
    pub(crate) const ARGUMENT: u8 = 18;
    pub(crate) const SHAPE_READ: u8 = 19;
    pub(crate) const SCRATCH: u8 = 20;
    pub(crate) const CALLBACK: u8 = 21;
    pub(crate) const CALLBACK_SKIPPED: u8 = 22;
    pub(crate) const UNREAD: u8 = 23;
    pub(crate) const DECISIVE_READ: u8 = 24;
    /// [`ALLOCATION_FAILURE`] and its line.
    pub(crate) const SITED_ALLOCATION_FAILURE: u8 = 25;
    /// From here on a record is a length and that many bytes, and may be skipped.
    pub(crate) const SKIPPABLE: u8 = 128;
    pub(crate) const MEMORY: u8 = 128;
    pub(crate) const WARNING: u8 = 129;
    pub(crate) const NOT_COMPUTED: u8 = 130;
    pub(crate) const STEP_NOTE: u8 = 131;
    pub(crate) const PROCESS_NOTE: u8 = 132;
    pub(crate) const PROGRAM_TIME: u8 = 133;
    pub(crate) const SETTINGS: u8 = 134;
}

/// Appends a LEB128 integer: seven bits a byte, lowest first, high bit set on all but the last.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a record that begins with its length.
pub(super) fn put_body(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    put(out, body.len() as u64);
    out.extend_from_slice(body);
}

/// Appends a record: its tag and its fields.
fn put_record(out: &mut Vec<u8>, tag: u8, fields: &[u64]) {
    out.push(tag);
    put_all(out, fields);
}

fn put_all(out: &mut Vec<u8>, fields: &[u64]) {
    for field in fields {
        put(out, *field);
    }
}

/// Appends the record of one event in relative form: a freed allocation is how many back.
pub(super) fn put_event(out: &mut Vec<u8>, event: &Event) {
    match *event {
        Event::Program { program, name, sizes, devices, loaded, compile_attempt, site } => {
            put_record(out, tag::PROGRAM, &[program.into(), name.0.into()]);
            put_all(out, &sizes.to_fields());
            let rest = [devices, loaded.into(), compile_attempt.0, site.0];
            put_all(out, &rest.map(u64::from));
        }
        Event::Variant { program, name, sizes } => {
            put_record(out, tag::VARIANT, &[program.into(), name.0.into()]);
            put_all(out, &sizes.to_fields());
        }
        Event::Scratch {
            program,
            library,
            routine,
            site,
            low_bytes,
            high_bytes,
            source,
            phase,
        } => {
            let names = [program, library.0, routine.0, site.0].map(u64::from);
            put_record(out, tag::SCRATCH, &names);
            put_all(out, &[low_bytes, high_bytes, source as u64, phase as u64]);
        }
        Event::Unload { program } => put_record(out, tag::UNLOAD, &[program.into()]),
        Event::Begin { program, site } => {
            put_record(out, tag::BEGIN, &[program.into(), site.0.into()]);
        }
        Event::Argument { parameter, allocation: back } => {
            put_record(out, tag::ARGUMENT, &[parameter.into(), back]);
        }
        Event::End => put_record(out, tag::END, &[]),
        Event::Allocate { device, bytes, alignment, space, purpose, slot, site: text }
        | Event::AllocationFailure {
            device,
            bytes,
            alignment,
            space,
            purpose,
            slot,
            message: text,
            ..
        } => {
            let (tag, failed_at) = match event {
                Event::AllocationFailure { site: TextId(0), .. } => (tag::ALLOCATION_FAILURE, None),
                Event::AllocationFailure { site, .. } => {
                    (tag::SITED_ALLOCATION_FAILURE, Some(site))
                }
                _ => (tag::ALLOCATE, None),
            };
            put_record(out, tag, &[device.into(), bytes, alignment]);
            let rest = [space as u64, purpose as u64, slot.into(), text.0.into()];
            put_all(out, &rest);
            if let Some(site) = failed_at {
                put(out, site.0.into());
            }
        }
        Event::Free { allocation: back } => put_record(out, tag::FREE, &[back]),
        Event::Unread { allocation: back } => put_record(out, tag::UNREAD, &[back]),
        Event::FreeAborts { allocation: back, message } => {
            put_record(out, tag::FREE_ABORTS, &[back, message.0.into()]);
        }
        Event::Driver { device, asked, address, granted } => {
            put_record(out, tag::DRIVER, &[device.into(), asked, address, granted]);
        }
        Event::OutsidePool { device, bytes } => {
            put_record(out, tag::OUTSIDE_POOL, &[device.into(), bytes]);
        }
        Event::ClearPeak { device } => put_record(out, tag::CLEAR_PEAK, &[device.into()]),
        Event::UnknownRead { site, bytes } => {
            put_record(out, tag::UNKNOWN_READ, &[site.0.into(), bytes]);
        }
        Event::ShapeRead { site, bytes } => {
            put_record(out, tag::SHAPE_READ, &[site.0.into(), bytes]);
        }
        Event::DecisiveRead { site, bytes, expression, value } => {
            let fields = [site.0.into(), bytes, expression.0.into(), value.0.into()];
            put_record(out, tag::DECISIVE_READ, &fields);
        }
        Event::Callback { site, calls, errors, error } => {
            let fields = [site.0.into(), calls, errors, error.0.into()];
            put_record(out, tag::CALLBACK, &fields);
        }
        Event::CallbackSkipped { site, calls, reason } => {
            let fields = [site.0.into(), calls, reason as u64];
            put_record(out, tag::CALLBACK_SKIPPED, &fields);
        }
    }
}

impl ProgramSizes {
    /// Returns the sizes in the order of the file.
    fn to_fields(self) -> [u64; 6] {
        [
            self.argument_bytes,
            self.output_bytes,
            self.alias_bytes,
            self.temp_bytes,
            self.constant_bytes,
            self.code_bytes,
        ]
    }
}

/// CRC-32 as zlib computes it, so that any language can check a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc(u32);

const CRC_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

impl Crc {
    pub(super) fn new() -> Self {
        Crc(u32::MAX)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 >> 8) ^ CRC_TABLE[((self.0 ^ u32::from(*byte)) & 0xff) as usize];
        }
    }

    pub(super) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_zlib() {
        let mut crc = Crc::new();
        crc.add(b"1234");
        crc.add(b"56789");
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc.value(), 0xcbf4_3926);
    }
}
