//! From one look to what is shown: GPUs, and on each the processes with their three memories.
//!
//! The driver says what a process holds. The process itself says how much of that its pool has
//! reserved, and how much of the pool is in use. Here the two are put side by side.

use serde::Serialize;
use vramfit_core::Bytes;
use vramfit_core::host::{HostGpu, Mig, Process};
use vramfit_core::published::{Asked, Header, Liveness, Sample, StatsStatus};

use super::moment::{Moment, Page};
use super::place::{Place, places};

/// Everything that is shown of one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Board {
    pub(super) schema: u32,
    pub(super) at_unix_ms: u64,
    pub(super) driver: Option<String>,
    pub(super) cuda: Option<String>,
    /// Why there is no driver, and what cures it.
    pub(super) no_driver: Option<String>,
    pub(super) no_driver_hint: Option<String>,
    pub(super) gpus: Vec<CardRow>,
}

/// One GPU, real or virtual.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct CardRow {
    /// Such as `GPU 0`, `GPU 0 slice 1`, `virtual`, or where a GPU is not known.
    pub(super) label: String,
    pub(super) name: String,
    pub(super) uuid: Option<String>,
    pub(super) is_virtual: bool,
    pub(super) total: Figure,
    pub(super) used: Figure,
    pub(super) utilization_percent: Option<u32>,
    pub(super) temperature_c: Option<u32>,
    pub(super) power_mw: Option<u32>,
    /// What published pools on it have reserved and have in use, where any is known.
    pub(super) reserved_bytes: Option<u64>,
    pub(super) in_use_bytes: Option<u64>,
    pub(super) processes: Vec<ProcessRow>,
    /// What the driver did not tell of it.
    pub(super) unknown: Vec<String>,
}

/// One process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProcessRow {
    pub(super) pid: u32,
    pub(super) user: Option<String>,
    pub(super) container: Option<String>,
    pub(super) command: Option<String>,
    /// Held, as the driver counts it: pool, context and libraries.
    pub(super) driver: Figure,
    /// Taken by JAX's pool.
    pub(super) reserved: Figure,
    /// Of that, given out to arrays and running programs.
    pub(super) in_use: Figure,
    /// The most that was in use since the process began.
    pub(super) peak: Figure,
    /// The largest piece that is free in the pool.
    pub(super) largest_free: Figure,
    /// What the pool may take.
    pub(super) limit: Figure,
    /// Whether the figures of the pool are of now; `None` for a process that publishes nothing.
    pub(super) liveness: Option<Liveness>,
    pub(super) pool: Option<Pool>,
}

/// What else a process published.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Pool {
    pub(super) jax: Option<String>,
    pub(super) plugin_api: String,
    pub(super) device_id: i32,
    pub(super) device_kind: String,
    pub(super) asked: Asked,
    pub(super) allocations: Option<u64>,
    pub(super) peak_pool_bytes: Option<u64>,
    pub(super) interval_ms: u32,
    pub(super) samples: u64,
    pub(super) microseconds_a_sample: Option<f64>,
}

/// A number of bytes, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Figure {
    Bytes(u64),
    Unknown(String),
}

impl Default for Figure {
    fn default() -> Self {
        Figure::Unknown("not told".to_owned())
    }
}

impl Figure {
    fn of(bytes: Option<u64>, why_not: &str) -> Self {
        bytes.map_or_else(|| Figure::Unknown(why_not.to_owned()), Figure::Bytes)
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Figure::Bytes(bytes) => Some(*bytes),
            Figure::Unknown(_) => None,
        }
    }
}

const NOT_PUBLISHED: &str =
    "not started with vramfit, or another user's: nobody can look inside its pool";
const NOT_TOLD: &str = "the driver does not tell what one process holds here";
const NO_DRIVER: &str = "there is no driver to ask";
const NO_STATISTICS: &str = "this allocator keeps no statistics (JAX shows none either)";
const PENDING: &str = "the process has not looked into its pool yet";
const NO_POOL_SIZE: &str = "this allocator does not say what it has from the driver";
const NO_LARGEST_FREE_BLOCK: &str = "JAX tells the largest free piece only since 0.11";

impl Board {
    /// Puts a look together.
    pub(super) fn of(moment: &Moment) -> Self {
        let gpus = moment.machine.iter().flat_map(|machine| &machine.gpus);
        let gpus: Vec<&HostGpu> = gpus.collect();
        let mut rows: Vec<CardRow> = gpus.iter().map(|gpu| gpu_row(gpu)).collect();
        let mut further = Vec::new();
        for page in &moment.pages {
            for (device, place) in places(page, &gpus).into_iter().enumerate() {
                match place {
                    Place::HostGpu(gpu) => put(&mut rows[gpu], page, device),
                    Place::Virtual | Place::Unknown => further.push(own_gpu(page, device)),
                }
            }
        }
        rows.append(&mut further);
        for row in &mut rows {
            add_up(row);
        }
        let machine = moment.machine.as_ref();
        let absence = moment.no_driver.as_ref();
        Board {
            schema: 1,
            at_unix_ms: moment.at_unix_ms,
            driver: machine.and_then(|machine| machine.driver.clone()),
            cuda: machine.and_then(|machine| machine.cuda.clone()),
            no_driver: absence.map(|absence| absence.message.clone()),
            no_driver_hint: absence.and_then(|absence| absence.hint.clone()),
            gpus: rows,
        }
    }
}

fn gpu_row(gpu: &HostGpu) -> CardRow {
    let label = match &gpu.mig {
        Mig::Slice { number, .. } => format!("GPU {} slice {number}", gpu.index),
        Mig::Parent => format!("GPU {} (divided)", gpu.index),
        Mig::Off => format!("GPU {}", gpu.index),
    };
    let not_told = "the driver does not tell this GPU's memory";
    let memory = gpu.memory.as_ref();
    CardRow {
        label,
        name: gpu.name.clone(),
        uuid: Some(gpu.uuid.clone()).filter(|uuid| !uuid.is_empty()),
        total: Figure::of(memory.map(|memory| memory.total_bytes), not_told),
        used: Figure::of(memory.map(|memory| memory.used_bytes), not_told),
        utilization_percent: gpu.utilization_percent,
        temperature_c: gpu.temperature_c,
        power_mw: gpu.power_mw.map(|(drawn, _)| drawn),
        processes: gpu.processes.iter().map(driver_row).collect(),
        unknown: gpu.unknown.clone(),
        ..CardRow::default()
    }
}

/// A process of which only the driver knows.
fn driver_row(process: &Process) -> ProcessRow {
    let closed = || Figure::Unknown(NOT_PUBLISHED.to_owned());
    ProcessRow {
        pid: process.pid,
        user: process.user.clone(),
        container: process.container.clone(),
        command: process.command.clone(),
        driver: Figure::of(process.used_bytes, NOT_TOLD),
        reserved: closed(),
        in_use: closed(),
        peak: closed(),
        largest_free: closed(),
        limit: closed(),
        ..ProcessRow::default()
    }
}

/// Adds what a process published to its row on a GPU, or makes it one.
fn put(gpu: &mut CardRow, page: &Page, device: usize) {
    let pid = page.header.pid;
    let known = gpu.processes.iter_mut();
    let known = page
        .same_namespace
        .then(|| {
            known
                .into_iter()
                .find(|row| row.pid == pid && row.pool.is_none())
        })
        .flatten();
    match known {
        Some(row) => {
            let driver = row.driver.clone();
            *row = published_row(page, device, driver);
        }
        None => {
            let driver = Figure::Unknown("the driver does not list this process here".to_owned());
            gpu.processes.push(published_row(page, device, driver));
        }
    }
}

/// The GPU of a device that the driver does not list: a virtual one, or one that cannot be found.
fn own_gpu(page: &Page, device: usize) -> CardRow {
    let told = page.header.devices.get(device).cloned().unwrap_or_default();
    let sample = page.live.devices.get(device).copied().unwrap_or_default();
    let (label, why) = match &page.header.virtual_gpu {
        Some(gpu) => (format!("virtual {gpu}"), PENDING),
        None => ("GPU not found".to_owned(), NO_DRIVER),
    };
    let driver = Figure::of(sample.driver_bytes, why);
    CardRow {
        label,
        name: told.kind,
        is_virtual: page.header.virtual_gpu.is_some(),
        total: Figure::of(told.virtual_total_bytes, NO_DRIVER),
        used: driver.clone(),
        processes: vec![published_row(page, device, driver)],
        ..CardRow::default()
    }
}

fn published_row(page: &Page, device: usize, driver: Figure) -> ProcessRow {
    let header = &page.header;
    let sample = page.live.devices.get(device).copied().unwrap_or_default();
    let why = match sample.answer {
        StatsStatus::Pending => PENDING.to_owned(),
        StatsStatus::Figures => NO_POOL_SIZE.to_owned(),
        StatsStatus::NoStatistics => NO_STATISTICS.to_owned(),
        StatsStatus::Failed(code) => format!("asking this allocator failed with code {code}"),
    };
    let process = page.process.as_ref();
    let command = process.and_then(|process| process.command.clone());
    ProcessRow {
        pid: header.pid,
        user: process.and_then(|process| process.user.clone()),
        container: process.and_then(|process| process.container.clone()),
        command: Some(command.unwrap_or_else(|| printable(&header.command))),
        driver,
        reserved: Figure::of(sample.pool_bytes, &why),
        in_use: Figure::of(sample.in_use_bytes, &why),
        peak: Figure::of(sample.peak_bytes, &why),
        largest_free: Figure::of(
            sample.largest_free_bytes,
            largest_free_reason(header, &sample, &why),
        ),
        limit: Figure::of(sample.limit_bytes, &why),
        liveness: Some(page.liveness),
        pool: Some(pool(page, device, &sample)),
    }
}

fn largest_free_reason<'a>(header: &Header, sample: &Sample, why: &'a str) -> &'a str {
    if sample.answer == StatsStatus::Figures && !header.reports_largest_free() {
        NO_LARGEST_FREE_BLOCK
    } else {
        why
    }
}

fn pool(page: &Page, device: usize, sample: &Sample) -> Pool {
    let told = page.header.devices.get(device).cloned().unwrap_or_default();
    let live = &page.live;
    let cost = (live.samples > 0).then(|| live.spent_ns as f64 / live.samples as f64 / 1000.0);
    Pool {
        jax: page.header.jax.clone(),
        plugin_api: page.header.plugin_api.clone(),
        device_id: told.id,
        device_kind: told.kind,
        asked: page.header.asked.clone(),
        allocations: sample.allocations,
        peak_pool_bytes: sample.peak_pool_bytes,
        interval_ms: page.header.interval_ms,
        samples: live.samples,
        microseconds_a_sample: cost,
    }
}

/// A command line is the word of a stranger, and a terminal obeys.
fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(shown).collect()
}

/// Adds up the pools on a GPU whose processes are there.
fn add_up(gpu: &mut CardRow) {
    let is_there = |row: &&ProcessRow| !matches!(row.liveness, None | Some(Liveness::Gone { .. }));
    let sum = |figure: fn(&ProcessRow) -> &Figure| {
        let known = gpu.processes.iter().filter(is_there);
        let known: Vec<u64> = known.filter_map(|row| figure(row).bytes()).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let (reserved, in_use) = (sum(|row| &row.reserved), sum(|row| &row.in_use));
    (gpu.reserved_bytes, gpu.in_use_bytes) = (reserved, in_use);
}

impl CardRow {
    /// Says in a sentence what `nvidia-smi` cannot: how much of what is taken is in use.
    pub(super) fn explanation(&self, is_narrow: bool) -> Option<String> {
        let (reserved, in_use) = (Bytes(self.reserved_bytes?), Bytes(self.in_use_bytes?));
        if is_narrow {
            return Some(format!("pool {reserved}, in use {in_use}"));
        }
        let taken = self
            .used
            .bytes()
            .map_or_else(String::new, |used| format!("of {} taken, ", Bytes(used)));
        Some(format!(
            "{taken}{reserved} reserved by JAX's pool, {in_use} of it in use"
        ))
    }
}
