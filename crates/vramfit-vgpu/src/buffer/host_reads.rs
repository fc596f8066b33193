//! Reading the contents of arrays. Reads of unknown values are recorded with the line that reads
//! them, and whether JAX uses the value as a shape.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vramfit_core::program::Shape;
use vramfit_core::trace::Event as LogEvent;

use crate::buffer::fill;
use crate::buffer::host_data::HostData;
use crate::buffer::value::Value;
use crate::device::machine::{self, Machine};
use crate::hooks;
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
pub(crate) fn read_value(shape: &Shape, value: &Value) -> PjrtResult<Arc<HostData>> {
    if let Some(bytes) = value.bytes() {
        return Ok(bytes);
    }
    let machine = machine::get().ok_or_else(|| Status::internal("no client was created"))?;
    if UNRECORDED_DEPTH.with(Cell::get) == 0 {
        record_read(machine, shape);
    }
    if let Some(bytes) = value.placeholder_bytes() {
        return Ok(bytes);
    }
    let mut bytes = vec![0; shape.host_bytes() as usize];
    fill::write_fill(
        machine.environment.fill,
        shape.element_type.name(),
        &mut bytes,
    );
    Ok(HostData::untracked(bytes))
}

/// Records that a placeholder is read, and where.
fn record_read(machine: &'static Machine, shape: &Shape) {
    let reader = hooks::get().and_then(hooks::Hooks::read_site);
    let (line, makes_a_shape) = reader.unwrap_or_default();
    warn_on_polling_loop(&line);
    let mut session = machine.session();
    let (site, bytes) = (session.intern(&line), shape.host_bytes());
    session.record(&match makes_a_shape {
        true => LogEvent::ShapeRead { site, bytes },
        false => LogEvent::UnknownRead { site, bytes },
    });
}
