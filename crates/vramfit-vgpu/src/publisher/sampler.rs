//! The thread that samples the statistics of the pools.

use std::io::{Error, Result};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vramfit_model::published::{DeviceSample, LiveStats, StatsStatus};

use super::api_wrapper::ClientInfo;
use super::config::PublishConfig;
use super::stats_file::StatsFile;
use super::{LAST_SAMPLES, VirtualGpu, folder, header};
use crate::lock;
use crate::pjrt::abi;
use crate::pjrt::abi::device::DeviceMemoryStatsArgs;
use crate::pjrt::cuda_plugin::{CudaPlugin, zeroed_struct};
use crate::pjrt::status::StatusCode;

/// A thread that samples one client.
pub(super) struct Sampler {
    /// Dropped to stop the thread.
    stop: Sender<()>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Creates the statistics file and starts the thread; returns the path of the file, too.
    ///
    /// # Safety
    /// `client` is a live client of `plugin`, until [`Sampler::stop`] has returned.
    pub(super) unsafe fn start(
        plugin: &'static CudaPlugin,
        client: *mut abi::Client,
        client_info: ClientInfo,
        number: u32,
        config: &PublishConfig,
    ) -> Result<(Self, PathBuf)> {
        let devices = header::devices(plugin, client).map_err(|e| Error::other(e.to_string()))?;
        let virtual_gpu = client_info.virtual_gpu;
        let header = header::header(plugin, &devices, client_info, number, config);
        let fills_largest_free = header.reports_largest_free();
        let stats_file = StatsFile::create(&folder::prepare_folder()?, &header)?;
        let path = stats_file.path().to_owned();
        let poller = Poller { plugin, devices, virtual_gpu, fills_largest_free };
        let (stop, stopped) = channel();
        let (running, ended) = channel();
        let interval = config.interval;
        let thread = with_signals_blocked(|| {
            thread::Builder::new().name("vramfit-publish".to_owned()).spawn(move || {
                run(&poller, stats_file, &stopped, interval);
                drop(running);
            })
        })?;
        let sampler = Sampler { stop, ended, thread };
        Ok((sampler, path))
    }

    /// Stops the thread and waits for its end.
    pub(super) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }

    /// Stops the thread, but waits no longer than `timeout` for its end.
    pub(super) fn stop_within(self, timeout: Duration) {
        drop(self.stop);
        if self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected) {
            let _ = self.thread.join();
        }
    }
}

/// The body of the thread: poll, write, wait.
fn run(poller: &Poller, mut stats_file: StatsFile, stopped: &Receiver<()>, interval: Duration) {
    let mut live = LiveStats::default();
    let mut next = Instant::now();
    loop {
        let start_ns = monotonic_ns();
        poller.poll(&mut live.devices);
        live.heartbeat_ns = monotonic_ns();
        live.samples += 1;
        live.sampling_ns += live.heartbeat_ns.saturating_sub(start_ns);
        stats_file.write(&live);

        // At a steady rate; polls that a slow one has delayed are skipped.
        next = (next + interval).max(Instant::now());
        let remaining = next.saturating_duration_since(Instant::now());
        if stopped.recv_timeout(remaining) != Err(RecvTimeoutError::Timeout) {
            poller.poll(&mut live.devices);
            *lock(&LAST_SAMPLES) = live.devices;
            return;
        }
    }
}

/// Reads the statistics of a client's devices.
struct Poller {
    plugin: &'static CudaPlugin,
    devices: Vec<*mut abi::Device>,
    virtual_gpu: Option<&'static VirtualGpu>,
    fills_largest_free: bool,
}

// SAFETY: the plugin may be called from any thread, and the devices live as long as their client,
// which is not destroyed before the thread has ended.
unsafe impl Send for Poller {}

impl Poller {
    fn poll(&self, samples: &mut Vec<DeviceSample>) {
        samples.clear();
        for (ordinal, &device) in self.devices.iter().enumerate() {
            // SAFETY: the devices are live, see above.
            let mut sample = unsafe { self.sample(device) };
            let extra_stats = self.virtual_gpu.and_then(|gpu| (gpu.extra_stats)(ordinal as u32));
            if let Some((used, largest_free)) = extra_stats {
                sample.driver_bytes = Some(used);
                sample.largest_free_block_bytes = largest_free;
            }
            samples.push(sample);
        }
    }

    unsafe fn sample(&self, device: *mut abi::Device) -> DeviceSample {
        let mut args: DeviceMemoryStatsArgs = zeroed_struct();
        args.device = device;
        if let Err(status) = self.plugin.call("PJRT_Device_MemoryStats", &mut args) {
            let stats_status = match status.code() {
                code if code == StatusCode::Unimplemented as i32 => StatsStatus::Unsupported,
                code => StatsStatus::Failed(code.unsigned_abs()),
            };
            return DeviceSample { status: stats_status, ..DeviceSample::default() };
        }
        let reported = |value: i64, is_set: bool| is_set.then_some(value.max(0) as u64);
        DeviceSample {
            status: StatsStatus::Available,
            in_use_bytes: reported(args.bytes_in_use, true),
            peak_bytes: reported(args.peak_bytes_in_use, args.peak_bytes_in_use_is_set),
            pool_bytes: reported(args.pool_bytes, args.pool_bytes_is_set),
            peak_pool_bytes: reported(args.peak_pool_bytes, args.peak_pool_bytes_is_set),
            largest_free_block_bytes: reported(
                args.largest_free_block_bytes,
                args.largest_free_block_bytes_is_set && self.fills_largest_free,
            ),
            limit_bytes: reported(args.bytes_limit, args.bytes_limit_is_set),
            allocations: reported(args.num_allocs, args.num_allocs_is_set),
            driver_bytes: None,
        }
    }
}

/// Returns the clock that all processes share.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Starts a thread that receives no signals: they are for the program's own threads, whose waits they
/// must interrupt.
fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are filled before they are read; a thread inherits the mask of its parent.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}
