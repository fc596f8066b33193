//! From one look to what is shown: GPUs, and on each the processes with their three memories.
//!
//! The driver says what a process holds. The process itself says how much of that its pool has
//! reserved, and how much of the pool is in use. Here the two are put side by side.

use std::collections::BTreeMap;

use serde::Serialize;
use vramfit_analysis::Bytes;
use vramfit_base::JSON_SCHEMA;
use vramfit_model::host::{HostGpu, Mig, Process};
use vramfit_model::published::{
    ClientSettings, DeviceSample, Liveness, PublishedDevice, StatsHeader, StatsStatus,
};

use super::device_mapping::{DeviceLocation, map_devices};
use super::sample::{PublishedStats, Sample};

/// Everything that is shown at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Snapshot {
    pub(super) schema: u32,
    pub(super) at_unix_ms: u64,
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<String>,
    /// Why no driver is available, and what to do about it.
    pub(super) no_driver: Option<String>,
    pub(super) no_driver_hint: Option<String>,
    pub(super) gpus: Vec<GpuRow>,
}

/// One GPU, real or virtual.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct GpuRow {
    /// Such as `GPU 0`, `GPU 0 slice 1` or `virtual t4`.
    pub(super) label: String,
    pub(super) name: String,
    pub(super) uuid: Option<String>,
    pub(super) is_virtual: bool,
    #[serde(rename = "total_bytes")]
    pub(super) total: Reading,
    #[serde(rename = "used_bytes")]
    pub(super) used: Reading,
    pub(super) utilization_percent: Option<u32>,
    pub(super) temperature_c: Option<u32>,
    pub(super) power_mw: Option<u32>,
    /// Totals of the published pools on it, if any.
    pub(super) reserved_bytes: Option<u64>,
    pub(super) in_use_bytes: Option<u64>,
    pub(super) processes: Vec<ProcessRow>,
    /// What the driver does not report.
    pub(super) unknown: Vec<String>,
}

/// One process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProcessRow {
    pub(super) pid: u32,
    pub(super) user: Option<String>,
    pub(super) container: Option<String>,
    pub(super) command: Option<String>,
    /// Memory used, as the driver reports it: pool, context and libraries.
    #[serde(rename = "driver_bytes")]
    pub(super) driver: Reading,
    /// Reserved by JAX's pool.
    #[serde(rename = "reserved_bytes")]
    pub(super) reserved: Reading,
    /// Of that, in use by arrays and running programs.
    #[serde(rename = "in_use_bytes")]
    pub(super) in_use: Reading,
    /// Peak memory in use since the process started.
    #[serde(rename = "peak_bytes")]
    pub(super) peak: Reading,
    /// Largest free block of the pool.
    #[serde(rename = "largest_free_bytes")]
    pub(super) largest_free: Reading,
    /// Maximum size of the pool.
    #[serde(rename = "limit_bytes")]
    pub(super) limit: Reading,
    /// Why amounts are unknown, by their keys in JSON.
    pub(super) unknown: BTreeMap<&'static str, String>,
    /// Whether the figures of the pool are of now; `None` for a process that publishes nothing.
    pub(super) liveness: Option<Liveness>,
    pub(super) pool: Option<PoolRow>,
}

impl ProcessRow {
    /// Returns why amounts are unknown.
    fn reasons(&self) -> BTreeMap<&'static str, String> {
        let amounts = [
            ("driver_bytes", &self.driver),
            ("reserved_bytes", &self.reserved),
            ("in_use_bytes", &self.in_use),
            ("peak_bytes", &self.peak),
            ("largest_free_bytes", &self.largest_free),
            ("limit_bytes", &self.limit),
        ];
        let unknown = amounts.into_iter().filter_map(|(key, reading)| match reading {
            Reading::Bytes(_) => None,
            Reading::Unknown(why) => Some((key, why.clone())),
        });
        unknown.collect()
    }

    /// Returns what about its pool needs attention: that it is nearly full, or that its free memory lies in
    /// small blocks.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let Some(in_use) = self.in_use.bytes() else {
            return warnings;
        };
        let limit = self.limit.bytes().filter(|limit| *limit > 0);
        if let Some(limit) = limit
            && in_use.saturating_mul(100) >= limit.saturating_mul(NEARLY_FULL_PERCENT)
        {
            let percent = in_use.saturating_mul(100) / limit;
            warnings.push(format!("the pool is {percent} % full"));
        }
        let free = self.reserved.bytes().map(|bytes| bytes.saturating_sub(in_use));
        if let (Some(free), Some(largest)) = (free, self.largest_free.bytes())
            && free.saturating_mul(MIN_FREE_FRACTION) >= limit.unwrap_or(u64::MAX)
            && largest.saturating_mul(SMALL_BLOCK_FRACTION) < free
        {
            warnings.push(format!(
                "the largest free block has {} of {} free",
                Bytes(largest),
                Bytes(free)
            ));
        }
        warnings
    }
}

/// A pool of which so much is in use is nearly full.
const NEARLY_FULL_PERCENT: u64 = 95;
/// Fragmentation matters if one in this many bytes of the pool is free,
const MIN_FREE_FRACTION: u64 = 20;
/// and the largest free block has less than one in this many of them.
const SMALL_BLOCK_FRACTION: u64 = 4;

/// What else a process publishes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct PoolRow {
    pub(super) jax: Option<String>,
    pub(super) plugin_api: String,
    pub(super) device_id: i32,
    pub(super) device_kind: String,
    pub(super) client_settings: ClientSettings,
    pub(super) allocations: Option<u64>,
    pub(super) peak_pool_bytes: Option<u64>,
    pub(super) interval_ms: u32,
    pub(super) samples: u64,
    pub(super) sampling_us: Option<f64>,
}

/// A number of bytes, or why it is unknown; in JSON the number, or null.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Option<u64>")]
pub(super) enum Reading {
    Bytes(u64),
    Unknown(String),
}

impl Default for Reading {
    fn default() -> Self {
        Reading::Unknown("not reported".to_owned())
    }
}

impl From<Reading> for Option<u64> {
    fn from(reading: Reading) -> Self {
        reading.bytes()
    }
}

impl Reading {
    fn of(bytes: Option<u64>, why_not: &str) -> Self {
        bytes.map_or_else(|| Reading::Unknown(why_not.to_owned()), Reading::Bytes)
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Reading::Bytes(bytes) => Some(*bytes),
            Reading::Unknown(_) => None,
        }
    }
}

const NOT_PUBLISHED: &str =
    "not started with vramfit, or run by another user: its pool is not visible";
const NOT_REPORTED: &str = "the driver does not report memory per process here";
const NO_DRIVER: &str = "no driver available";
const NO_STATISTICS: &str = "this allocator keeps no statistics (JAX shows none either)";
const PENDING: &str = "the process has not published statistics yet";
const NO_POOL_SIZE: &str = "this allocator does not report the memory it has reserved";
const NO_LARGEST_FREE_BLOCK: &str = "JAX reports the largest free block only since 0.11";

impl Snapshot {
    /// Combines the parts of a sample.
    pub(super) fn of(sample: &Sample) -> Self {
        let gpus = sample.host.iter().flat_map(|host| &host.gpus);
        let gpus: Vec<&HostGpu> = gpus.collect();
        let mut rows: Vec<GpuRow> = gpus.iter().map(|gpu| driver_gpu_row(gpu)).collect();
        let mut unmapped = Vec::new();
        for stats in &sample.published {
            for (device, place) in map_devices(stats, &gpus).into_iter().enumerate() {
                match place {
                    DeviceLocation::Gpu(gpu) => add_published_row(&mut rows[gpu], stats, device),
                    DeviceLocation::Virtual | DeviceLocation::Unknown => {
                        unmapped.push(unmapped_gpu(stats, device));
                    }
                }
            }
        }
        number_alike(&mut unmapped);
        rows.append(&mut unmapped);
        for row in &mut rows {
            compute_totals(row);
            for process in &mut row.processes {
                process.unknown = process.reasons();
            }
        }
        let host = sample.host.as_ref();
        let unavailable = sample.no_driver.as_ref();
        Snapshot {
            schema: JSON_SCHEMA,
            at_unix_ms: sample.at_unix_ms,
            driver: host.and_then(|host| host.driver.clone()),
            cuda: host.and_then(|host| host.cuda.clone()),
            no_driver: unavailable.map(|unavailable| unavailable.message.clone()),
            no_driver_hint: unavailable.and_then(|unavailable| unavailable.hint.clone()),
            gpus: rows,
        }
    }
}

fn driver_gpu_row(gpu: &HostGpu) -> GpuRow {
    let label = match &gpu.mig {
        Mig::Instance { number, .. } => format!("GPU {} slice {number}", gpu.index),
        Mig::Parent => format!("GPU {} (MIG)", gpu.index),
        Mig::Off => format!("GPU {}", gpu.index),
    };
    let not_reported = "the driver does not report the memory of this GPU";
    let memory = gpu.memory.as_ref();
    GpuRow {
        label,
        name: gpu.name.clone(),
        uuid: Some(gpu.uuid.clone()).filter(|uuid| !uuid.is_empty()),
        total: Reading::of(memory.map(|memory| memory.total_bytes), not_reported),
        used: Reading::of(memory.map(|memory| memory.used_bytes), not_reported),
        utilization_percent: gpu.utilization_percent,
        temperature_c: gpu.temperature_c,
        power_mw: gpu.power_mw.map(|(drawn, _)| drawn),
        processes: gpu.processes.iter().map(driver_row).collect(),
        unknown: gpu.unknown.clone(),
        ..GpuRow::default()
    }
}

/// A process that only the driver reports.
fn driver_row(process: &Process) -> ProcessRow {
    let unpublished = || Reading::Unknown(NOT_PUBLISHED.to_owned());
    ProcessRow {
        pid: process.pid,
        user: process.user.clone(),
        container: process.container.clone(),
        command: process.command.clone(),
        driver: Reading::of(process.used_bytes, NOT_REPORTED),
        reserved: unpublished(),
        in_use: unpublished(),
        peak: unpublished(),
        largest_free: unpublished(),
        limit: unpublished(),
        ..ProcessRow::default()
    }
}

/// Adds what a process publishes to its row, or adds a row.
fn add_published_row(gpu: &mut GpuRow, stats: &PublishedStats, device: usize) {
    let pid = stats.header.pid;
    let mut rows = gpu.processes.iter_mut();
    match rows.find(|row| stats.same_namespace && row.pid == pid && row.pool.is_none()) {
        Some(row) => *row = published_row(stats, device, row.driver.clone()),
        None => {
            let driver = Reading::Unknown("the driver does not list this process".to_owned());
            gpu.processes.push(published_row(stats, device, driver));
        }
    }
}

/// The GPU of a device that the driver does not list: virtual or unknown.
fn unmapped_gpu(stats: &PublishedStats, device: usize) -> GpuRow {
    let (device_info, sample) = stats.device(device);
    let (label, why) = match &stats.header.virtual_gpu {
        Some(gpu) => (format!("virtual {gpu}"), PENDING),
        None => ("unknown GPU".to_owned(), NO_DRIVER),
    };
    let driver = Reading::of(sample.driver_bytes, why);
    GpuRow {
        label,
        name: device_info.kind,
        is_virtual: stats.header.virtual_gpu.is_some(),
        total: Reading::of(device_info.virtual_total_bytes, NO_DRIVER),
        used: driver.clone(),
        processes: vec![published_row(stats, device, driver)],
        ..GpuRow::default()
    }
}

/// Numbers GPUs that would have the same label.
fn number_alike(gpus: &mut [GpuRow]) {
    let labels: Vec<String> = gpus.iter().map(|gpu| gpu.label.clone()).collect();
    for (at, gpu) in gpus.iter_mut().enumerate() {
        let is_alike = |label: &&String| **label == labels[at];
        if labels.iter().filter(is_alike).count() > 1 {
            let number = labels[..at].iter().filter(is_alike).count() + 1;
            gpu.label = format!("{} #{number}", labels[at]);
        }
    }
}

fn published_row(stats: &PublishedStats, device: usize, driver: Reading) -> ProcessRow {
    let header = &stats.header;
    let (device_info, sample) = stats.device(device);
    let why = match sample.status {
        StatsStatus::Pending => PENDING.to_owned(),
        StatsStatus::Available => NO_POOL_SIZE.to_owned(),
        StatsStatus::Unsupported => NO_STATISTICS.to_owned(),
        StatsStatus::Failed(code) => {
            format!("reading the statistics of this allocator failed with code {code}")
        }
    };
    let process = stats.process.as_ref();
    let command = process.and_then(|process| process.command.clone());
    ProcessRow {
        pid: header.pid,
        user: process.and_then(|process| process.user.clone()),
        container: process.and_then(|process| process.container.clone()),
        command: Some(command.unwrap_or_else(|| vramfit_gpu::printable(&header.command))),
        driver,
        reserved: Reading::of(sample.pool_bytes, &why),
        in_use: Reading::of(sample.in_use_bytes, &why),
        peak: Reading::of(sample.peak_bytes, &why),
        largest_free: Reading::of(
            sample.largest_free_block_bytes,
            largest_free_reason(header, &sample, &why),
        ),
        limit: Reading::of(sample.limit_bytes, &why),
        liveness: Some(stats.liveness),
        pool: Some(pool(stats, device_info, &sample)),
        unknown: BTreeMap::new(),
    }
}

fn largest_free_reason<'a>(header: &StatsHeader, sample: &DeviceSample, why: &'a str) -> &'a str {
    if sample.status == StatsStatus::Available && !header.reports_largest_free() {
        NO_LARGEST_FREE_BLOCK
    } else {
        why
    }
}

fn pool(stats: &PublishedStats, device: PublishedDevice, sample: &DeviceSample) -> PoolRow {
    let live = &stats.live;
    let cost = (live.samples > 0).then(|| live.sampling_ns as f64 / live.samples as f64 / 1000.0);
    PoolRow {
        jax: stats.header.jax.clone(),
        plugin_api: stats.header.plugin_api.clone(),
        device_id: device.id,
        device_kind: device.kind,
        client_settings: stats.header.client_settings.clone(),
        allocations: sample.allocations,
        peak_pool_bytes: sample.peak_pool_bytes,
        interval_ms: stats.header.interval_ms,
        samples: live.samples,
        sampling_us: cost,
    }
}

/// Computes the totals of the pools on a GPU, without those of processes that have exited.
fn compute_totals(gpu: &mut GpuRow) {
    let is_there = |row: &&ProcessRow| !matches!(row.liveness, None | Some(Liveness::Gone { .. }));
    let sum = |reading: fn(&ProcessRow) -> &Reading| {
        let known = gpu.processes.iter().filter(is_there);
        let known: Vec<u64> = known.filter_map(|row| reading(row).bytes()).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let (reserved, in_use) = (sum(|row| &row.reserved), sum(|row| &row.in_use));
    (gpu.reserved_bytes, gpu.in_use_bytes) = (reserved, in_use);
}

impl GpuRow {
    /// Explains in a sentence how much of the used memory is in use by programs.
    pub(super) fn explanation(&self, is_narrow: bool) -> Option<String> {
        let (reserved, in_use) = (Bytes(self.reserved_bytes?), Bytes(self.in_use_bytes?));
        if is_narrow {
            return Some(format!("pool {reserved}, in use {in_use}"));
        }
        let used_clause = self
            .used
            .bytes()
            .map_or_else(String::new, |used| format!("{} used, of which ", Bytes(used)));
        Some(format!("{used_clause}{reserved} reserved by JAX's pool and {in_use} in use"))
    }
}
