//! A whole configuration, with a value for every key.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use vramfit_base::Bytes;

use super::key::PythonName;

/// The configuration of a run; `docs/reference/training-config.md` describes each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The data.
    pub data: Data,
    /// The model.
    pub model: Model,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The training loop.
    pub training: Training,
    /// The checkpoints.
    pub checkpoint: Checkpoint,
}

impl Config {
    /// Returns the number of steps of the whole run, for epochs of so many steps.
    pub fn total_steps(&self, steps_per_epoch: u64) -> u64 {
        let of_epochs = self.training.epochs.map(|epochs| epochs.saturating_mul(steps_per_epoch));
        // A dispatch is not divided.
        let steps = self.training.steps.unwrap_or(u64::MAX);
        let steps = steps.div_ceil(self.training.steps_per_dispatch);
        let steps = steps.saturating_mul(self.training.steps_per_dispatch);
        of_epochs.unwrap_or(u64::MAX).min(steps)
    }
}

impl Model {
    /// Returns the class or function of the user's that makes the model; none for one of ours.
    pub fn own(&self) -> Option<PythonName<'_>> {
        PythonName::parse(&self.kind)
    }
}

impl Data {
    /// Returns whether inputs, or targets, are normalized.
    pub fn normalizes(&self, column: &str) -> bool {
        self.normalize.as_deref().is_some_and(|which| which == "both" || which == column)
    }
}

/// The data, and how it is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each field is explained in `keys`")]
pub struct Data {
    pub path: PathBuf,
    pub inputs: String,
    pub targets: String,
    pub validation_fraction: f64,
    pub validation_path: Option<PathBuf>,
    pub memory: Bytes,
    pub batch_size: u64,
    pub sequence_length: Option<u64>,
    pub classes: Option<u64>,
    pub scale: Option<f64>,
    pub normalize: Option<String>,
    pub vocabulary: Option<u64>,
    pub shuffle: bool,
    pub seed: u64,
}

/// The model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each field is explained in `keys`")]
pub struct Model {
    pub kind: String,
    pub arguments: Option<Map<String, Json>>,
    /// One width for each layer.
    pub hidden_sizes: Vec<u64>,
    pub layers: Option<u64>,
    pub heads: u64,
    pub dropout: f64,
    pub dtype: String,
}

/// The optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each field is explained in `keys`")]
pub struct Optimizer {
    pub name: String,
    pub learning_rate: f64,
    pub schedule: String,
    pub warmup_steps: Option<u64>,
    pub plateau_factor: Option<f64>,
    pub plateau_patience: Option<u64>,
    pub weight_decay: f64,
    pub weight_decay_mask: Option<String>,
    pub momentum: f64,
    pub clip: Option<f64>,
    pub accumulate: u64,
}

/// The training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each field is explained in `keys`")]
pub struct Training {
    /// None where `steps` is set and this is not.
    pub epochs: Option<u64>,
    pub steps: Option<u64>,
    pub loss: Option<String>,
    pub seed: u64,
    pub device: Option<String>,
    pub directory: Option<PathBuf>,
    pub steps_per_dispatch: u64,
    pub log_every: u64,
    pub eval_every: Option<u64>,
    pub best_by: Option<String>,
    pub stop_after: Option<u64>,
    pub stop_on_nan: bool,
    pub tensorboard: bool,
}

/// The checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each field is explained in `keys`")]
pub struct Checkpoint {
    pub every_steps: Option<u64>,
    pub every_seconds: f64,
    pub keep_last: u64,
    pub keep_best: u64,
}
