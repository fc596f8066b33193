//! A GPU that is not there.
//!
//! JAX talks to hardware through the PJRT C API. This crate is a PJRT plugin that stands in front
//! of the real CUDA plugin: programs are compiled by the real compiler, on a topology instead of
//! a device; buffers are only accounted for, in vramfit's model of JAX's allocators; executing
//! does no arithmetic. Everything that happens goes into a trace.
//!
//! | file | subject |
//! | --- | --- |
//! | `abi` | the structs of the C API |
//! | `names`, `functions`, `table` | which entry of the API does what, and the table itself |
//! | `extensions`, `layouts`, `shardings` | the chain behind the table |
//! | `real` | the real plugin |
//! | `environment` | what `vramfit dryrun` asks for |
//! | `machine`, `session`, `shared` | the cards, their allocators, and the log |
//! | `client`, `topology`, `device`, `memory` | what JAX sees of them |
//! | `compile`, `memory_kinds`, `choices`, `heard`, `compiled`, `record`, `executable`, `inspect` | programs |
//! | `execute`, `call`, `origin`, `steps`, `sites` | running them, and which of them trains |
//! | `ending` | ending the process when the steps are done |
//! | `buffer`, `copies`, `strides`, `transfer`, `value`, `reads`, `fill` | arrays and their contents |
//! | `settings` | what the environment held, and what was set too late |
//! | `process` | which process a number stands for |
//! | `publisher` | telling `vramfit top`, of a real GPU or of this one |
//! | `hooks` | what is asked of the Python process around it |
//! | `error`, `event`, `status` | how things end |
//!
//! Safety: every handler trusts one promise, that of the API: pointers in an argument struct are
//! valid for the call, and handles are those that were given out and not yet destroyed.
#![allow(unsafe_code, reason = "this crate speaks C in both directions")]
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "every body trusts the one promise named above"
)]

use std::ffi::c_void;
use std::sync::OnceLock;

use vramfit_core::trace::{Note, UncaughtError};

mod abi;
mod buffer;
mod call;
mod choices;
mod client;
mod compile;
mod compiled;
mod copies;
mod device;
mod dump;
mod ending;
mod environment;
mod error;
mod event;
mod executable;
mod execute;
mod extensions;
mod fill;
mod functions;
mod heard;
mod hooks;
mod host_data;
mod inspect;
mod layouts;
mod log;
mod machine;
mod memory;
mod memory_kinds;
mod names;
mod origin;
mod process;
mod publisher;
mod reads;
mod real;
mod record;
mod session;
mod settings;
mod shardings;
mod shared;
mod sites;
mod status;
mod steps;
mod strides;
mod table;
mod topology;
mod trace_failure;
mod transfer;
mod value;

pub use ending::{further_steps, hold_other_threads, wake_main_thread};
pub use hooks::{
    DeclaredValue, Evaluated, Hooks, HostArray, HostCall, HostInput, Interface, ProgramDescription,
    set as set_hooks,
};
pub use publisher::{finish as stop_publishing, is_wanted as wants_publishing, set_jax_version};
pub use real::set_library;
pub use settings::note as note_settings;
pub use table::calls;

/// Whether the GPU is the real one, and this library only looks on.
static LOOKS_ON: OnceLock<bool> = OnceLock::new();

/// Lets the real plugin through instead of pretending a GPU. To be called before [`api`].
pub fn look_on() {
    let _ = LOOKS_ON.set(true);
}

/// Returns the table of functions that JAX calls through; null when the real plugin cannot be loaded.
pub fn api() -> *const c_void {
    let looks_on = *LOOKS_ON.get_or_init(|| false);
    let table = if looks_on {
        real::get().map_or(std::ptr::null(), |real| real.table())
    } else {
        table::api()
    };
    let virtual_gpu = if looks_on { || None } else { virtual_gpu };
    // SAFETY: the table belongs to a plugin that is never unloaded.
    unsafe { publisher::before(table, virtual_gpu) }.cast()
}

/// Returns what the publisher tells of the virtual GPU.
fn virtual_gpu() -> Option<&'static publisher::Virtual> {
    static VIRTUAL: OnceLock<publisher::Virtual> = OnceLock::new();
    let environment = &machine::get()?.environment;
    Some(VIRTUAL.get_or_init(|| publisher::Virtual {
        gpu: environment.gpu.name.clone(),
        total_bytes: environment.gpu.total_memory_bytes,
        behind: |device| machine::get()?.session().behind_the_statistics(device),
    }))
}

/// Ends publishing and the trace. Called when the process is about to exit; later events are not
/// recorded. `error` is the exception that ends the program, if one does.
pub fn finish(error: Option<UncaughtError>) {
    publisher::finish();
    // A forked copy of the process ends, too; the trace is not its own.
    if let Some(machine) = machine::get().filter(|_| !machine::is_forked()) {
        let mut session = machine.session();
        if let Some(error) = error {
            session.note(&Note::Error(error));
        }
        session.finish();
        drop(session);
        if machine.environment.print_calls {
            print_calls();
        }
    }
}

/// Prints how often each function of the API was called: a free report of compatibility.
fn print_calls() {
    log::line("calls of the PJRT API in this process");
    for (name, count, is_there) in calls() {
        let note = if is_there { "" } else { "  (not available)" };
        log::line(&format!("{count:>10} {name}{note}"));
    }
}
