//! The figures that a log tells, joined from all its messages.

use serde::Serialize;

use super::ExplainOptions;
use super::dump_line::BinFigures;
use super::fit::{OtherPool, fit_elsewhere};
use super::log::Log;
use super::message::{Message, StatName};
use super::number::Size;
use super::request::Request;
use crate::allocator::{JaxVersion, PoolOptions};
use crate::gpu::{self, GpuSelection};
use crate::published::DeviceSample;
use crate::settings::MAX_FRACTION;

/// The release that is assumed where a log names none: the figures of a pool are the same in all before 0.11.
const ASSUMED_JAX: JaxVersion = (0, 10, 2);

/// The largest requests that would have fitted, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitFigures {
    /// Whether the first three are known to the byte: where the log has the address of every block.
    pub is_exact: bool,
    /// From the pool as it was.
    pub now: Option<u64>,
    /// By taking more memory from the driver, up to the limit.
    pub by_growing: Option<u64>,
    /// If all free memory of the pool had been in one piece.
    pub without_fragmentation: Option<u64>,
    /// In a fresh preallocated pool of the same limit, beside the same live blocks.
    pub preallocated: Option<u64>,
    /// In a fresh growing pool of the same limit.
    pub growing: Option<u64>,
    /// In a fresh partitioned pool of the same limit, as JAX 0.11 and later have it.
    pub partitioned: Option<u64>,
    /// In a fresh preallocated pool with [`MAX_FRACTION`] of the GPU.
    pub raised_fraction: Option<u64>,
}

impl FitFigures {
    /// Returns [`MAX_FRACTION`] as a client gets it: through a 32-bit number.
    pub(super) fn raised_fraction() -> f64 {
        f64::from(MAX_FRACTION as f32)
    }
}

/// What a program needs, by kind of buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NeedFigures {
    /// Arguments.
    pub argument_bytes: u64,
    /// Outputs; donated arguments are among them.
    pub live_out_bytes: u64,
    /// Temporaries.
    pub temp_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

/// A program of which nothing but its outputs takes memory, by XLA's warning about rematerialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputsOnly {
    /// The bytes of its outputs.
    pub output_bytes: u64,
    /// The limit of the pool, which follows from the budget that they leave.
    pub limit_bytes: u64,
}

/// What a log tells in numbers. `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The request that failed first.
    pub requested_bytes: Option<u64>,
    /// Whether that is known to the byte; a log of `1.97GiB` is not.
    pub requested_is_exact: bool,
    /// What the pool rounded it to.
    pub rounded_bytes: Option<u64>,
    /// The compiled program that made it.
    pub program: Option<String>,
    /// Bytes in use at the failure.
    pub in_use_bytes: Option<u64>,
    /// Whether that was read when the process ended: arrays may have been released since the failure.
    pub in_use_is_at_end: bool,
    /// The most that was in use before.
    pub peak_in_use_bytes: Option<u64>,
    /// Limit of the pool.
    pub limit_bytes: Option<u64>,
    /// What the pool has from the driver.
    pub pool_bytes: Option<u64>,
    /// Free bytes of the pool together.
    pub free_bytes: Option<u64>,
    /// The largest free block that the request could have had.
    pub largest_free_block_bytes: Option<u64>,
    /// What requests would have fitted.
    pub fits: FitFigures,
    /// Size classes of the pool.
    pub bins: Vec<BinFigures>,
    /// What the program needs, where XLA has told.
    pub need: Option<NeedFigures>,
    /// What the pool has to have for the program: what was in use and the request, or what XLA says of the program.
    pub needed_bytes: Option<u64>,
    /// Whether the log leaves out part of that.
    pub needed_is_least: bool,
    /// Whether they are an upper bound: the most that was in use before the failure, and the request.
    pub needed_is_most: bool,
    /// Whether they are what XLA says of one program, without arrays that it does not take.
    pub needed_is_of_program: bool,
    /// The program, where nothing but its outputs takes memory.
    pub outputs_only: Option<OutputsOnly>,
    /// Total memory of the GPU.
    pub gpu_total_bytes: Option<u64>,
    /// Free memory of the GPU, as the driver reported it at the failure.
    pub gpu_free_bytes: Option<u64>,
    /// The GPU, by its name in the catalog.
    pub gpu: Option<&'static str>,
    /// How many GPUs the program had; 1 where nothing tells of more.
    pub gpu_count: u32,
    /// The release of JAX.
    pub jax: Option<JaxVersion>,
}

impl Figures {
    /// Joins the figures of a log with what is known beside it.
    pub(super) fn join(log: &Log, request: Option<&Request>, options: &ExplainOptions) -> Figures {
        let other = other_request(log).filter(|_| request.is_none());
        let size = request.map(|request| request.size).or(other);
        let mut figures = Figures {
            requested_bytes: request.map(requested).or(other.map(|size| size.bytes)),
            requested_is_exact: size.is_some_and(Size::is_exact),
            rounded_bytes: request.and_then(|request| request.rounded),
            program: request.and_then(|request| request.program.clone()),
            jax: options.jax.or(log.jax().map(|(_, version)| version)),
            ..Figures::default()
        };
        figures.add_gpu(log, options.gpus.as_ref());
        figures.add_stats(log);
        figures.add_dump(log);
        if let Some(pool) = options.process.as_ref().and_then(|process| process.pool) {
            figures.add_pool_at_end(&pool);
        }
        figures.outputs_only = request.and_then(|request| outputs_only(log, request));
        let by_outputs = figures.outputs_only.map(|only| only.limit_bytes);
        figures.limit_bytes = figures.limit_bytes.or(by_outputs);
        if figures.free_bytes.is_none() {
            let in_use = figures.in_use_bytes;
            figures.free_bytes =
                figures.pool_bytes.zip(in_use).and_then(|(pool, used)| pool.checked_sub(used));
        }
        figures.need = log.program_need().map(|(_, need)| NeedFigures {
            argument_bytes: need.arguments.bytes,
            live_out_bytes: need.live_out.bytes,
            temp_bytes: need.temporaries.bytes,
            total_bytes: need.total.bytes,
        });
        figures
    }

    /// Returns model and number of the GPUs as `--gpu` takes them, `NAME` or `NAMExN`.
    pub fn gpu_label(&self) -> Option<String> {
        let name = self.gpu?;
        Some(match self.gpu_count {
            0 | 1 => name.to_owned(),
            count => format!("{name}x{count}"),
        })
    }

    fn add_gpu(&mut self, log: &Log, gpus: Option<&GpuSelection>) {
        let gpu = gpus.map(|gpus| &gpus.gpu);
        self.gpu_count = gpus.map_or_else(|| log.count_refusing_gpus(), |gpus| gpus.count);
        let named = log.find_same(|message| match message {
            Message::Gpu { name } => Some(*name),
            _ => None,
        });
        let known = gpu.and_then(|gpu| gpu::get(&gpu.name));
        let known = known.or_else(|| gpu::get(named?));
        self.gpu = known.map(|gpu| gpu.name.as_str());
        self.gpu_total_bytes = gpu.or(known).map(|gpu| gpu.total_memory_bytes);
        let total = log.find_same(|message| match message {
            Message::GpuMemory { total, .. } => Some(*total),
            _ => None,
        });
        if total.is_some() {
            self.gpu_total_bytes = total;
            let at_failure = log.find(|message| match message {
                Message::GpuMemory { free, at_failure: true, .. } => Some(*free),
                _ => None,
            });
            self.gpu_free_bytes = at_failure.map(|(_, free)| free);
        }
        let is_slice = self.gpu.and_then(gpu::get).is_some_and(|gpu| gpu.mig_parent.is_some());
        if gpu.is_none() && !is_slice {
            self.name_slice(log);
        }
    }

    /// Names the MIG slice that the program had of the named GPU, by its profile or by its memory; no GPU where neither
    /// is one of the catalog.
    fn name_slice(&mut self, log: &Log) {
        let profile = log.find_same(|message| match message {
            Message::MigSlice { profile } if !profile.is_empty() => Some(profile.clone()),
            _ => None,
        });
        let is_sliced = log.has(|message| matches!(message, Message::MigSlice { .. }));
        let Some(whole) = self.gpu.and_then(gpu::get) else { return };
        let told = self.gpu_total_bytes.filter(|total| *total < whole.total_memory_bytes / 10 * 9);
        if told.is_none() && !is_sliced {
            return;
        }
        let mut slices =
            gpu::all().iter().filter(|gpu| gpu.mig_parent.as_ref() == Some(&whole.name));
        let slice = slices.find(|slice| match (&profile, told) {
            (Some(profile), _) => slice.name.ends_with(profile.as_str()),
            (None, Some(told)) => told.abs_diff(slice.total_memory_bytes) <= told / 50,
            (None, None) => false,
        });
        self.gpu = slice.map(|slice| slice.name.as_str());
        self.gpu_total_bytes = told.or(slice.map(|slice| slice.total_memory_bytes));
    }

    /// Adds what the program has printed of `memory_stats()`, and what the client logs of its pool.
    fn add_stats(&mut self, log: &Log) {
        let last = |name| log.stat(name).map(|series| series.last);
        self.in_use_bytes = last(StatName::BytesInUse);
        self.peak_in_use_bytes = log.stat(StatName::PeakBytesInUse).map(|series| series.max);
        self.pool_bytes = last(StatName::PoolBytes);
        self.largest_free_block_bytes = last(StatName::LargestFreeBlock).filter(|bytes| *bytes > 0);
        let planned = log.find(|message| match message {
            Message::PoolPlanned { bytes, .. } => Some(*bytes),
            _ => None,
        });
        self.limit_bytes = last(StatName::BytesLimit).or(planned.map(|(_, bytes)| bytes));
    }

    /// Adds what the process says of its pool; what the log says is of the failure itself.
    fn add_pool_at_end(&mut self, pool: &DeviceSample) {
        self.in_use_is_at_end = self.in_use_bytes.is_none() && pool.in_use_bytes.is_some();
        self.in_use_bytes = self.in_use_bytes.or(pool.in_use_bytes);
        self.peak_in_use_bytes = self.peak_in_use_bytes.or(pool.peak_bytes);
        self.pool_bytes = self.pool_bytes.or(pool.pool_bytes);
        self.limit_bytes = self.limit_bytes.or(pool.limit_bytes);
    }

    fn add_dump(&mut self, log: &Log) {
        let Some(dump) = log.dump() else { return };
        let bytes = |size: Size| size.bytes;
        self.limit_bytes = dump.limit().map(bytes).or(self.limit_bytes);
        self.pool_bytes = dump.pool_bytes().or(self.pool_bytes);
        self.in_use_bytes = dump.in_use_bytes().or(self.in_use_bytes);
        self.free_bytes = dump.free_bytes();
        self.largest_free_block_bytes =
            dump.largest_usable_bytes().or(self.largest_free_block_bytes);
        let peak = dump.stats.and_then(|stats| stats.peak_in_use);
        self.peak_in_use_bytes = peak.map(bytes).or(self.peak_in_use_bytes);
        self.bins.clone_from(&dump.bins);
        // Neither is known where the dump has no address of every byte and names no largest free chunk.
        let whole = dump.largest_usable_bytes().zip(dump.free_bytes());
        if let Some((largest, free)) = whole {
            self.fits.is_exact = dump.is_complete();
            self.fits.now = Some(largest);
            self.fits.by_growing = Some(dump.unallocated_bytes().unwrap_or(0));
            self.fits.without_fragmentation = Some(free);
        }
        let jax = self.jax.unwrap_or(ASSUMED_JAX);
        if let Some(limit) = self.exact_limit(log) {
            let fits = |pool, limit| fit_elsewhere(dump, pool, limit, jax);
            self.fits.preallocated = fits(OtherPool::Preallocated, limit);
            self.fits.growing = fits(OtherPool::Growing, limit);
            self.fits.partitioned = fits(OtherPool::Partitioned, limit);
        }
        if let Some(total_memory_bytes) = self.gpu_total_bytes {
            let raised = PoolOptions {
                total_memory_bytes,
                memory_fraction: FitFigures::raised_fraction(),
                jax_version: jax,
                ..PoolOptions::default()
            };
            let limit = raised.limit_bytes();
            self.fits.raised_fraction = fit_elsewhere(dump, OtherPool::Preallocated, limit, jax);
        }
    }

    /// Returns the limit to the byte. Where the log rounds it and the pool is full-size, that is the pool.
    fn exact_limit(&self, log: &Log) -> Option<u64> {
        let dump = log.dump()?;
        let limit = dump.limit()?;
        let pool = dump.pool_bytes()?;
        match limit.is_exact() {
            true => Some(limit.bytes),
            false => limit.agrees_with(Size::exact(pool)).then_some(pool),
        }
    }
}

/// Returns `true` if a program has nothing but outputs: nothing of it could be recomputed, and all of it was requested.
/// Then the budget that XLA prints is 95 % of the limit without them, and negative where they exceed it; releases
/// that add the outputs to it print a positive one.
fn outputs_only(log: &Log, request: &Request) -> Option<OutputsOnly> {
    /// Tables of the addresses of outputs.
    const MAX_TABLES_BYTES: u64 = 64 << 10;
    let (_, (target, outputs)) = log.find(|message| match message {
        Message::Rematerialization { target, reached, before: Some(before) }
            if *target < 0 && before == reached =>
        {
            Some((*target, *reached))
        }
        _ => None,
    })?;
    let limit = outputs.checked_sub(scale_budget(target).unsigned_abs())?;
    let rest = outputs.checked_sub(request.rounded.unwrap_or(request.size.bytes))?;
    (limit > 0 && rest <= MAX_TABLES_BYTES)
        .then_some(OutputsOnly { output_bytes: outputs, limit_bytes: limit })
}

/// Returns the bytes of a request. What the pool rounded it to is at most 255 more, and so nearer than a size
/// that the log rounds.
fn requested(request: &Request) -> u64 {
    match request.rounded {
        Some(rounded)
            if !request.size.is_exact() && request.size.agrees_with(Size::exact(rounded)) =>
        {
            rounded
        }
        _ => request.size.bytes,
    }
}

/// Returns the size that was requested of the host, or by the autotuner.
fn other_request(log: &Log) -> Option<Size> {
    let found = log.find(|message| match message {
        Message::Host { size, .. } => *size,
        Message::DirectRefusal { size } => Some(*size),
        _ => None,
    });
    found.map(|(_, size)| size)
}

/// What XLA's scheduler keeps of the budget, in percent: `xla_gpu_memory_limit_slop_factor`.
const SLOP_PERCENT: i64 = 95;

/// Returns the budget of which XLA prints what its scheduler keeps.
pub(super) fn scale_budget(target: i64) -> i64 {
    let whole = i128::from(target) * 100 / i128::from(SLOP_PERCENT);
    i64::try_from(whole).unwrap_or(if target < 0 { i64::MIN } else { i64::MAX })
}
