//! Publishes what is inside of JAX's pool while the program runs, for `vramfit top`.
//!
//! With `VRAMFIT_PUBLISH` set, JAX gets a copy of the plugin's table in which two functions are ours:
//! after a client is created a thread asks each of its devices for its statistics, ten times a second,
//! and writes them onto a page; before the client is destroyed the thread ends. Nothing else is
//! touched, and the thread never takes Python's lock. It stands before the real plugin and before the
//! virtual GPU alike.
//!
//! It never breaks the user's run: whatever goes wrong here, JAX gets the table as it was, or the
//! client goes on without a page. Why is said with `VRAMFIT_PUBLISH=verbose`.

mod api_wrapper;
mod config;
mod folder;
mod header;
mod sampler;
mod stats_file;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use crate::pjrt::abi;
use crate::pjrt::cuda_plugin::CudaPlugin;
use config::PublishConfig;
use sampler::Sampler;

pub(crate) use api_wrapper::wrap;

/// What only a virtual card can tell, by the device's number in this process: its catalogue name
/// and total memory, the bytes the process holds on it, and the largest free piece of its pool.
#[derive(Debug)]
pub(crate) struct VirtualGpu {
    pub(crate) gpu: String,
    pub(crate) total_bytes: u64,
    pub(crate) extra_stats: fn(u32) -> Option<(u64, Option<u64>)>,
}

/// A client that is published.
struct Published {
    client: usize,
    sampler: Sampler,
}

/// The version of `jax`, where the stand-in module told it.
static JAX_VERSION: OnceLock<String> = OnceLock::new();

static CLIENTS: Mutex<Vec<Published>> = Mutex::new(Vec::new());

/// The process that publishes. A forked copy of it has the same memory but not the threads, and must
/// touch neither the page nor the locks.
static OWNER: AtomicU32 = AtomicU32::new(0);
static CLIENT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// How long the end of the process waits for the thread, which may be in the allocator just then.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Says which version of `jax` runs here. Only the first call counts.
pub fn set_jax_version(version: &str) {
    let _ = JAX_VERSION.set(version.to_owned());
}

/// Says something if it was asked to; `what` is a clause.
fn log_verbose(config: &PublishConfig, what: &str) {
    if config.verbose {
        crate::session::log::print_line(what);
    }
}

/// Begins to publish a client that was just created.
///
/// # Safety
/// `client` is a live client of `plugin`.
unsafe fn start(
    plugin: &'static CudaPlugin,
    client: *mut abi::Client,
    client_settings: api_wrapper::ClientSettings,
    config: &PublishConfig,
) {
    let this = std::process::id();
    let owner = OWNER.compare_exchange(0, this, Ordering::AcqRel, Ordering::Acquire);
    if owner.is_err_and(|owner| owner != this) {
        return log_verbose(
            config,
            "not publishing: this is a forked copy of a process that has a client",
        );
    }
    let number = CLIENT_NUMBER.fetch_add(1, Ordering::Relaxed);
    match Sampler::start(plugin, client, client_settings, number, config) {
        Ok((sampler, path)) => {
            log_verbose(config, &format!("publishing to `{}`", path.display()));
            let published = Published {
                client: client as usize,
                sampler,
            };
            match CLIENTS.try_lock() {
                Ok(mut clients) => clients.push(published),
                Err(TryLockError::Poisoned(clients)) => clients.into_inner().push(published),
                // Another client comes or goes at this moment.
                Err(TryLockError::WouldBlock) => published.sampler.stop(),
            }
        }
        Err(error) => log_verbose(config, &format!("not publishing: {error}")),
    }
}

/// Ends what was begun for a client, before it is destroyed. Returns when nobody asks it any more.
fn stop(client: *mut abi::Client) {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    for published in take_published(|published| published.client == client as usize) {
        published.sampler.stop();
    }
}

/// Ends publishing because the process ends. A client may still be there; nobody destroys it, but its
/// plugin's own handlers run soon, and a thread inside of it would be in their way.
pub fn finish() {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    for published in take_published(|_| true) {
        published.sampler.stop_within(STOP_TIMEOUT);
    }
}

fn take_published(predicate: impl Fn(&Published) -> bool) -> Vec<Published> {
    let mut clients = CLIENTS.lock().unwrap_or_else(|lock| lock.into_inner());
    clients
        .extract_if(.., |published| predicate(published))
        .collect()
}
