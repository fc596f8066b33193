//! What a run takes in memory, as far as it can be added up before anything is compiled.

use serde::Serialize;
use vramfit_core::Bytes;
use vramfit_core::train::{Config, optimizer_bytes, parameter_bytes, parameters};
use vramfit_gpu::{Sampler, host_environment};

use super::datasets::Look;
use crate::commands::data::grouped;

/// Batches on the device: one with the step, two on their way.
const BATCHES: u64 = 3;

/// The parts of a run's memory, in bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Memory {
    pub(super) parameters: u64,
    parameter_bytes: u64,
    optimizer_bytes: u64,
    gradient_bytes: u64,
    /// Of all batches that are on the device at once.
    batch_bytes: u64,
    /// The sum of the four.
    device_bytes: u64,
    /// What reading may take, with what validating takes.
    loader_bytes: u64,
    #[serde(skip)]
    readers: u64,
    /// The memory of the smallest GPU; none where there is none, or none is used.
    gpu_memory_bytes: Option<u64>,
    /// The memory that this process may have.
    host_memory_bytes: Option<u64>,
}

impl Memory {
    /// Adds up what a run takes; none for a model of unknown size.
    pub(super) fn add_up(config: &Config, look: &Look) -> Option<Memory> {
        let inputs = look.inputs.row();
        let mut seen = inputs.to_vec();
        if let (Some(length), Some(steps)) = (look.sequence_length, seen.first_mut()) {
            *steps = length;
        }
        let targets: u64 = match look.predicts_next {
            true => seen.iter().product(),
            false => look.targets.row().iter().product(),
        };
        let outputs = look.classes.unwrap_or(targets);
        let parameters = parameters(&config.model, &seen, outputs, look.vocabulary)?;
        let width = match look.inputs.becomes {
            "uint8" | "int8" => 1,
            "uint16" | "int16" => 2,
            _ => 4,
        };
        let row = width * seen.iter().product::<u64>() + 4 * targets;
        let stack = config.data.batch_size * config.training.steps_per_dispatch;
        let own = parameter_bytes(parameters);
        let optimizer = optimizer_bytes(&config.optimizer, parameters);
        let batches = BATCHES * stack * row;
        let readers = 1 + u64::from(look.validation_rows > 0);
        Some(Memory {
            parameters,
            parameter_bytes: own,
            optimizer_bytes: optimizer,
            gradient_bytes: own,
            batch_bytes: batches,
            device_bytes: own + optimizer + own + batches,
            loader_bytes: readers * config.data.memory.0,
            readers,
            gpu_memory_bytes: match config.training.device.as_deref() {
                Some("cpu" | "metal") => None,
                _ => smallest_gpu(),
            },
            host_memory_bytes: host_memory(),
        })
    }

    /// Returns what is told of it, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let validation = match self.readers {
            1 => "",
            _ => ", half of it while it validates",
        };
        let mut all = vec![
            format!(
                "parameters   {}: {}, as much again for gradients, {} for the optimizer",
                grouped(self.parameters),
                Bytes(self.parameter_bytes),
                Bytes(self.optimizer_bytes)
            ),
            format!(
                "memory       at least {} for steps: all this and {BATCHES} batches ({}); values of layers come on \
                 top, which `--dry-run GPU` measures",
                Bytes(self.device_bytes),
                Bytes(self.batch_bytes)
            ),
            format!(
                "{:12} at most {} for reading{validation}",
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
                Some(format!(
                    "{:12} {sum} together; the host has {}",
                    "",
                    Bytes(host)
                ))
            }
            (None, None) => None,
        });
        all
    }

    /// Returns what there is not enough of.
    pub(super) fn warning(&self) -> Option<String> {
        let (needed, there, place) = match (self.gpu_memory_bytes, self.host_memory_bytes) {
            (Some(there), _) if self.device_bytes > there => (self.device_bytes, there, "the GPU"),
            (Some(_), Some(there)) => (self.loader_bytes, there, "the host"),
            (None, Some(there)) => (self.device_bytes + self.loader_bytes, there, "the host"),
            _ => return None,
        };
        (needed > there).then(|| {
            format!(
                "the run takes {} by this count, and {place} has {}: take a smaller model, batch or `data.memory`",
                Bytes(needed),
                Bytes(there)
            )
        })
    }
}

/// Returns the memory of the smallest GPU of this machine.
fn smallest_gpu() -> Option<u64> {
    let machine = Sampler::open().ok()?.scan();
    let memories = machine.gpus.iter().filter_map(|card| card.memory.as_ref());
    memories.map(|memory| memory.total_bytes).min()
}

/// Returns the memory that this process may have: all of the machine's, or what its control group may.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let limit = host_environment()
        .host_memory
        .map(|memory| memory.limit_bytes);
    Some((kibibytes * 1024).min(limit.unwrap_or(u64::MAX)))
}
