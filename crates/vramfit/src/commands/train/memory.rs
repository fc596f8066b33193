//! An estimate of the memory of a run, before anything is compiled.

use serde::Serialize;
use vramfit_core::Bytes;
use vramfit_core::train::{Config, optimizer_bytes, parameter_bytes, parameter_count};
use vramfit_gpu::{Sampler, host_environment};

use super::datasets::DatasetInfo;
use crate::commands::data::grouped;

/// Batches on the device: that of the step, and two in transfer.
const BATCHES_ON_DEVICE: u64 = 3;

/// The memory of a run, in bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MemoryEstimate {
    pub(super) parameters: u64,
    parameter_bytes: u64,
    optimizer_bytes: u64,
    gradient_bytes: u64,
    /// All batches that are on the device at once.
    batch_bytes: u64,
    /// The sum of the four.
    device_bytes: u64,
    /// The memory limit of all loaders together.
    loader_bytes: u64,
    #[serde(skip)]
    loader_count: u64,
    /// The memory of the smallest GPU; none if no GPU is used.
    gpu_memory_bytes: Option<u64>,
    /// The memory available to this process.
    host_memory_bytes: Option<u64>,
}

impl MemoryEstimate {
    /// Estimates the memory of a run; none for a model of unknown size.
    pub(super) fn new(config: &Config, info: &DatasetInfo) -> Option<MemoryEstimate> {
        let mut row = info.inputs.row().to_vec();
        if let (Some(length), Some(steps)) = (info.sequence_length, row.first_mut()) {
            *steps = length;
        }
        let targets: u64 = match info.predicts_next {
            true => row.iter().product(),
            false => info.targets.row().iter().product(),
        };
        let outputs = info.classes.unwrap_or(targets);
        let parameters = parameter_count(&config.model, &row, outputs, info.vocabulary)?;
        let width = match info.inputs.batch_dtype {
            "uint8" | "int8" => 1,
            "uint16" | "int16" => 2,
            _ => 4,
        };
        let row_bytes = width * row.iter().product::<u64>() + 4 * targets;
        let stack = config.data.batch_size * config.training.steps_per_dispatch;
        let own = parameter_bytes(parameters);
        let optimizer = optimizer_bytes(&config.optimizer, parameters);
        let batches = BATCHES_ON_DEVICE * stack * row_bytes;
        let loader_count = 1 + u64::from(info.validation_rows > 0);
        Some(MemoryEstimate {
            parameters,
            parameter_bytes: own,
            optimizer_bytes: optimizer,
            gradient_bytes: own,
            batch_bytes: batches,
            device_bytes: own + optimizer + own + batches,
            loader_bytes: loader_count * config.data.memory.0,
            loader_count,
            gpu_memory_bytes: match config.training.device.as_deref() {
                Some("cpu" | "metal") => None,
                _ => smallest_gpu(),
            },
            host_memory_bytes: host_memory(),
        })
    }

    /// Returns the estimate as lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let validation = match self.loader_count {
            1 => "",
            _ => " (half of it for validation)",
        };
        let mut all = vec![
            format!(
                "parameters   {}: {}, the same again for gradients, {} for the optimizer",
                grouped(self.parameters),
                Bytes(self.parameter_bytes),
                Bytes(self.optimizer_bytes)
            ),
            format!(
                "memory       at least {} on the device: the above and {BATCHES_ON_DEVICE} batches ({}); activations come on \
                 top, use `--dry-run GPU` to measure them",
                Bytes(self.device_bytes),
                Bytes(self.batch_bytes)
            ),
            format!(
                "{:12} at most {} on the host for reading{validation}",
                "",
                Bytes(self.loader_bytes)
            ),
        ];
        all.extend(match (self.gpu_memory_bytes, self.host_memory_bytes) {
            (Some(gpu), Some(host)) => {
                let (gpu, host) = (Bytes(gpu), Bytes(host));
                Some(format!("{:12} the GPU has {gpu}, and the host {host}", ""))
            }
            (Some(gpu), None) => Some(format!("{:12} the GPU has {}", "", Bytes(gpu))),
            (None, Some(host)) => {
                let sum = Bytes(self.device_bytes + self.loader_bytes);
                Some(format!("{:12} {sum} in total; the host has {}", "", Bytes(host)))
            }
            (None, None) => None,
        });
        all
    }

    /// Returns a warning if the memory is not enough.
    pub(super) fn warning(&self) -> Option<String> {
        let (needed, available, location) = match (self.gpu_memory_bytes, self.host_memory_bytes) {
            (Some(gpu), _) if self.device_bytes > gpu => (self.device_bytes, gpu, "the GPU"),
            (Some(_), Some(host)) => (self.loader_bytes, host, "the host"),
            (None, Some(host)) => (self.device_bytes + self.loader_bytes, host, "the host"),
            _ => return None,
        };
        (needed > available).then(|| {
            format!(
                "the run needs an estimated {}, but {location} has {}: use a smaller model, batch or `data.memory`",
                Bytes(needed),
                Bytes(available)
            )
        })
    }
}

/// Returns the memory of the smallest GPU of this machine.
fn smallest_gpu() -> Option<u64> {
    let machine = Sampler::open().ok()?.scan();
    let memories = machine.gpus.iter().filter_map(|gpu| gpu.memory.as_ref());
    memories.map(|memory| memory.total_bytes).min()
}

/// Returns the memory available to this process: that of the host, or the limit of its control group.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let limit = host_environment().host_memory.map(|memory| memory.limit_bytes);
    Some((kibibytes * 1024).min(limit.unwrap_or(u64::MAX)))
}
