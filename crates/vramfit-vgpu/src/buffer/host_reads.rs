//! Reading the contents of arrays. Reads of unknown values are recorded with the line that reads
//! them, and whether JAX uses the value as a shape.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vramfit_model::program::Shape;
use vramfit_model::trace::Event as LogEvent;

use crate::buffer::device_buffer::Storage;
use crate::buffer::fill;
use crate::buffer::host_data::HostData;
use crate::device::machine::{self, Machine};
use crate::hooks::{self, ReadSite, ReadUse};
use crate::pjrt::status::{PjrtResult, Status};

thread_local! {
    static UNRECORDED_DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Stops recording what this thread reads, for reads whose result the reader replaces or only compares; or goes
/// on with it. Calls nest.
pub fn set_unrecorded(is_unrecorded: bool) {
    UNRECORDED_DEPTH.with(|depth| {
        depth.set(match is_unrecorded {
            true => depth.get() + 1,
            false => depth.get().saturating_sub(1),
        });
    });
}

/// Returns `true` if what this thread reads is recorded.
pub(crate) fn is_recorded() -> bool {
    UNRECORDED_DEPTH.with(Cell::get) == 0
}

/// Warns, once, that a program may be waiting for a value that will never change.
fn warn_on_polling_loop(site: &str) {
    const POLLING_THRESHOLD: u64 = 10_000;
    static READS: AtomicU64 = AtomicU64::new(0);
    if READS.fetch_add(1, Ordering::Relaxed) + 1 == POLLING_THRESHOLD {
        crate::session::log::print_line(&format!(
            "{POLLING_THRESHOLD} placeholder values were read, the last one at {site}; a loop that waits for one \
             to change never ends: `--steps N` ends the run after N steps"
        ));
    }
}

/// Returns an array's value as the program reads it; a placeholder is recorded in the trace.
pub(crate) fn read_value(shape: &Shape, storage: &Storage) -> PjrtResult<Arc<HostData>> {
    let value = &storage.value;
    if let Some(bytes) = value.bytes() {
        return Ok(bytes);
    }
    let machine = machine::get().ok_or_else(|| Status::internal("no client was created"))?;
    let is_recorded = is_recorded();
    let reader = hooks::get().filter(|_| is_recorded);
    let reader = reader.and_then(hooks::Hooks::read_site).unwrap_or_default();
    let bytes = value.placeholder_bytes().unwrap_or_else(|| {
        let mut bytes = vec![0; shape.host_bytes() as usize];
        let element_type = shape.element_type.name();
        let fill = machine.header.run.fill;
        match reader.purpose == ReadUse::Constant && shape.elements() > 1 {
            true => {
                let address = storage.block.as_ref().map_or(0, |block| block.address);
                fill::write_constant(fill, address, element_type, &mut bytes);
            }
            false => fill::write_fill(fill, element_type, &mut bytes),
        }
        HostData::untracked(bytes)
    });
    if is_recorded {
        record_read(machine, shape, &bytes, &reader);
    }
    Ok(bytes)
}

/// Records that a placeholder is read, and where.
fn record_read(machine: &'static Machine, shape: &Shape, data: &[u8], reader: &ReadSite) {
    warn_on_polling_loop(&reader.line);
    let mut session = machine.session();
    let (site, bytes) = (session.intern(&reader.line), shape.host_bytes());
    let event = match reader.purpose {
        ReadUse::Value | ReadUse::Constant => LogEvent::UnknownRead { site, bytes },
        ReadUse::Shape => LogEvent::ShapeRead { site, bytes },
        ReadUse::Decision => LogEvent::DecisiveRead {
            site,
            bytes,
            expression: session.intern(&reader.expression),
            value: session.intern(&describe(shape, data)),
        },
    };
    session.record(&event);
}

/// Describes what a read gives: the number of a scalar, else what an array is filled with.
fn describe(shape: &Shape, data: &[u8]) -> String {
    let element_type = shape.element_type.name();
    let first = data.get(..shape.element_type.bytes() as usize);
    let first = first.unwrap_or_default();
    let is_zero = first.iter().all(|byte| *byte == 0);
    let number = match (element_type, is_zero) {
        ("pred", true) => "false".to_owned(),
        ("pred", false) => "true".to_owned(),
        (_, true) => "0".to_owned(),
        (_, false) => match fill::number_of(element_type, first) {
            Some(number) => number,
            None => return "another value than 0".to_owned(),
        },
    };
    if shape.elements() == 1 {
        number
    } else if data.chunks_exact(first.len().max(1)).all(|element| element == first) {
        format!("{number} everywhere")
    } else {
        "several values".to_owned()
    }
}
