//! Publishes the statistics of JAX's pool while the program runs, for `vramfit top`.
//!
//! With `VRAMFIT_PUBLISH` set, JAX gets a copy of the plugin's table in which two functions are replaced:
//! after a client is created, a thread reads the statistics of each of its devices, ten times a second,
//! and writes them to a file; before the client is destroyed the thread ends. Nothing else is
//! touched, and the thread never takes the GIL. It works for the real plugin and for the virtual
//! GPU alike.
//!
//! It never breaks the user's run: if it fails, JAX gets the original table, or the client has no
//! statistics file. `VRAMFIT_PUBLISH=verbose` logs the reason.

mod api_wrapper;
mod config;
mod folder;
mod header;
mod sampler;
mod stats_file;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use vramfit_model::published::DeviceSample;

use crate::lock;
use crate::pjrt::abi;
use crate::pjrt::cuda_plugin::CudaPlugin;
use config::PublishConfig;
use sampler::Sampler;

pub(crate) use api_wrapper::wrap;

/// What is known of a virtual GPU only: its catalog name and total memory; and by the device's number in
/// this process, the bytes that the process uses on it, and the largest free block of its pool.
#[derive(Debug)]
pub(crate) struct VirtualGpu {
    pub(crate) gpu: String,
    pub(crate) total_bytes: u64,
    pub(crate) extra_stats: fn(u32) -> Option<(u64, Option<u64>)>,
}

struct PublishedClient {
    client: usize,
    sampler: Sampler,
}

/// The version of `jax`, if the shim has set it.
static JAX_VERSION: OnceLock<String> = OnceLock::new();

static CLIENTS: Mutex<Vec<PublishedClient>> = Mutex::new(Vec::new());

/// The pools of the client that ended last.
static LAST_SAMPLES: Mutex<Vec<DeviceSample>> = Mutex::new(Vec::new());

/// The process that publishes. A forked copy of it has the same memory but not the threads, and must
/// touch neither the file nor the locks.
static OWNER_PID: AtomicU32 = AtomicU32::new(0);
static CLIENT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// How long the end of the process waits for the thread, which may be inside the allocator.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Sets the version of `jax` in this process. Only the first call counts.
pub fn set_jax_version(version: &str) {
    let _ = JAX_VERSION.set(version.to_owned());
}

/// Returns the statistics of the pools when publishing ended; none before.
pub fn last_samples() -> Vec<DeviceSample> {
    lock(&LAST_SAMPLES).clone()
}

/// Logs a clause if the publisher is verbose.
fn log_verbose(config: &PublishConfig, what: &str) {
    if config.verbose {
        crate::session::log::print_line(what);
    }
}

/// Starts to publish a client that was just created.
///
/// # Safety
/// `client` is a live client of `plugin`.
unsafe fn start(
    plugin: &'static CudaPlugin,
    client: *mut abi::Client,
    client_info: api_wrapper::ClientInfo,
    config: &PublishConfig,
) {
    let this = std::process::id();
    let owner = OWNER_PID.compare_exchange(0, this, Ordering::AcqRel, Ordering::Acquire);
    if owner.is_err_and(|owner| owner != this) {
        return log_verbose(
            config,
            "not publishing: this is a forked copy of a process that has a client",
        );
    }
    let number = CLIENT_NUMBER.fetch_add(1, Ordering::Relaxed);
    match Sampler::start(plugin, client, client_info, number, config) {
        Ok((sampler, path)) => {
            log_verbose(config, &format!("publishing to `{}`", path.display()));
            let published = PublishedClient { client: client as usize, sampler };
            match CLIENTS.try_lock() {
                Ok(mut clients) => clients.push(published),
                Err(TryLockError::Poisoned(clients)) => clients.into_inner().push(published),
                // Another client is created or destroyed at this moment.
                Err(TryLockError::WouldBlock) => published.sampler.stop(),
            }
        }
        Err(error) => log_verbose(config, &format!("not publishing: {error}")),
    }
}

/// Stops publishing a client before it is destroyed. Returns when no thread uses it any more.
fn stop(client: *mut abi::Client) {
    if OWNER_PID.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    for published in take_published(|published| published.client == client as usize) {
        published.sampler.stop();
    }
}

/// Stops publishing because the process ends. A client may still exist that is never destroyed, but its
/// plugin's exit handlers run soon, and no thread may be inside of it then.
pub(crate) fn finish() {
    if OWNER_PID.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    for published in take_published(|_| true) {
        published.sampler.stop_within(STOP_TIMEOUT);
    }
}

fn take_published(predicate: impl Fn(&PublishedClient) -> bool) -> Vec<PublishedClient> {
    lock(&CLIENTS).extract_if(.., |published| predicate(published)).collect()
}
