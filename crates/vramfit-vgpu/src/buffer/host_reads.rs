//! Reading what an array holds. Values that a dry run makes up are noted with the line that reads
//! them, and whether JAX makes a shape of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vramfit_core::program::Shape;
use vramfit_core::trace::Event as LogEvent;

use crate::buffer::fill;
use crate::buffer::host_data::Data;
use crate::buffer::value::Value;
use crate::device::machine;
use crate::hooks;
use crate::pjrt::status::{Answer, Status};

/// Says, once, that a program may be waiting for a value that will never change.
fn warn_of_a_loop(site: &str) {
    const MANY: u64 = 10_000;
    static READS: AtomicU64 = AtomicU64::new(0);
    if READS.fetch_add(1, Ordering::Relaxed) + 1 == MANY {
        crate::session::log::line(&format!(
            "{MANY} made-up values were read, the last one at {site}; a loop that waits for one \
             to change never ends: `--steps N` ends the run after N steps"
        ));
    }
}

/// Returns an array's value as the program sees it; a made-up one is noted in the log.
pub(crate) fn read(shape: &Shape, value: &Value) -> Answer<Arc<Data>> {
    if let Some(bytes) = value.bytes() {
        return Ok(bytes);
    }
    let machine = machine::get().ok_or_else(|| Status::internal("no client was created"))?;
    let reader = hooks::get().and_then(hooks::Hooks::reader);
    let (line, makes_a_shape) = reader.unwrap_or_default();
    warn_of_a_loop(&line);
    let mut session = machine.session();
    let (site, bytes) = (session.text(&line), shape.host_bytes());
    session.record(&match makes_a_shape {
        true => LogEvent::ShapeRead { site, bytes },
        false => LogEvent::UnknownRead { site, bytes },
    });
    drop(session);
    if let Some(bytes) = value.assumed_bytes() {
        return Ok(bytes);
    }
    let mut bytes = vec![0; shape.host_bytes() as usize];
    fill::fill(
        machine.environment.fill,
        shape.element_type.name(),
        &mut bytes,
    );
    Ok(Data::uncounted(bytes))
}
