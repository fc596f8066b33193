//! A virtual GPU.
//!
//! JAX uses hardware through the PJRT C API. This crate is a PJRT plugin that wraps the real CUDA
//! plugin: programs are compiled by the real compiler, on a topology instead of
//! a device; buffers are only accounted for, in vramfit's model of JAX's allocators; executing
//! does no arithmetic. All allocations, programs and executions are recorded in a trace.
//!
//! | folder or file | subject |
//! | --- | --- |
//! | `pjrt` | the C API: table, dispatch, extensions, errors, events, and the real CUDA plugin |
//! | `device` | the client, its devices, and the memory of each |
//! | `compile` | programs: compiled, loaded, inspected, serialized |
//! | `execute` | executing them, and detecting the training step |
//! | `buffer` | arrays and their contents |
//! | `session` | allocations and the trace; ending the run |
//! | `publisher` | statistics for `vramfit top`, of a real GPU or of this one |
//! | `hooks` | what the Python process around the plugin provides |
//! | `process` | which process a number stands for |
//!
//! Safety: every handler relies on one guarantee, that of the API: pointers in an argument struct are
//! valid for the call, and handles were returned by this plugin and are not destroyed yet.
#![allow(unsafe_code, reason = "this crate calls C and is called by C")]
#![allow(unsafe_op_in_unsafe_fn, reason = "every body relies on the one guarantee named above")]

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use vramfit_model::trace::{ArrayHolder, CpuProgram, Note, UncaughtError};

mod buffer;
mod compile;
mod device;
mod execute;
mod hooks;
mod pjrt;
mod process;
mod publisher;
mod session;

use device::machine;
use pjrt::{cuda_plugin, table};
use session::log;

pub use buffer::host_reads::set_unrecorded as set_reads_unrecorded;
pub use hooks::{
    CallbackOutcome, DeclaredValue, Evaluation, Hooks, HostArray, HostInput, InputsByHost,
    ProgramDescription, ProgramInterface, ProgramSlice, ReadSite, ReadUse, set as set_hooks,
};
pub use pjrt::cuda_plugin::set_library;
pub use pjrt::table::calls;
pub use publisher::{last_samples, set_jax_version};
pub use session::run_settings::record as record_settings;
pub use session::shutdown::{extra_steps, park_other_threads, wake_main_thread};

/// Locks a mutex, also one that was locked during a panic: a panic is reported to JAX as an error of one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the real plugin's table is passed through, and no GPU is simulated.
static PASSTHROUGH: OnceLock<bool> = OnceLock::new();

/// Passes the real plugin through instead of simulating a GPU. To be called before [`api`].
pub fn enable_passthrough() {
    let _ = PASSTHROUGH.set(true);
}

/// Returns the table of functions that JAX calls through; null when the real plugin cannot be loaded.
pub fn api() -> *const c_void {
    let is_passthrough = *PASSTHROUGH.get_or_init(|| false);
    let table = if is_passthrough {
        cuda_plugin::get().map_or(std::ptr::null(), |plugin| plugin.table())
    } else {
        table::api()
    };
    let virtual_gpu = if is_passthrough { || None } else { virtual_gpu };
    // SAFETY: the table belongs to a plugin that is never unloaded.
    unsafe { publisher::wrap(table, virtual_gpu) }.cast()
}

/// Returns what the publisher needs to know of the virtual GPU.
fn virtual_gpu() -> Option<&'static publisher::VirtualGpu> {
    static SIMULATED: OnceLock<publisher::VirtualGpu> = OnceLock::new();
    let run = &machine::get()?.header.run;
    Some(SIMULATED.get_or_init(|| publisher::VirtualGpu {
        gpu: run.gpus.gpu.name.clone(),
        total_bytes: run.gpus.gpu.total_memory_bytes,
        extra_stats: |device| machine::get()?.session().extra_stats(device),
    }))
}

/// Notes that a program has run on JAX's CPU backend. Without a GPU there is no trace, and nothing to say.
pub fn note_cpu_program(program: CpuProgram) {
    if let Some(machine) = machine::get().filter(|_| !machine::is_forked()) {
        machine.session().note(&Note::CpuProgram(program));
    }
}

/// Records which variables hold the arrays of the program.
pub fn note_array_holders(holders: Vec<ArrayHolder>) {
    let machine = machine::get().filter(|_| !machine::is_forked() && !holders.is_empty());
    if let Some(machine) = machine {
        machine.session().note(&Note::ArrayHolders { holders });
    }
}

/// Returns how many programs this process has executed on the virtual GPU.
pub fn executions() -> u64 {
    machine::get().map_or(0, |machine| machine.session().executions())
}

/// Stops publishing and finishes the trace. To be called when the process is about to exit; later events
/// are not recorded. `error` is the exception that ends the program, if there is one.
pub fn finish(error: Option<UncaughtError>) {
    publisher::finish();
    // A forked copy of the process also gets here, but the trace is not its own.
    if let Some(machine) = machine::get().filter(|_| !machine::is_forked()) {
        let mut session = machine.session();
        if let Some(error) = error {
            session.note(&Note::Error(error));
        }
        session.finish();
        drop(session);
        if std::env::var_os("VRAMFIT_PJRT_CALLS")
            .is_some_and(|value| !value.is_empty() && value != "0")
        {
            print_calls();
        }
    }
}

/// Prints how often each function of the API was called.
fn print_calls() {
    log::print_line("calls of the PJRT API in this process");
    for (name, count, is_there) in calls() {
        let note = if is_there { "" } else { "  (not available)" };
        log::print_line(&format!("{count:>10} {name}{note}"));
    }
}
