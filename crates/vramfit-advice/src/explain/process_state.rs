//! What a process that failed knows of itself beside what it has logged.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::published::{DeviceSample, StatsStatus};
use crate::trace::ArrayHolder;

/// The settings and the pool of the process whose log is explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessState {
    /// The environment variables that JAX has read.
    pub environment: BTreeMap<String, String>,
    /// The fullest pool of its GPUs, when the process ended.
    pub pool: Option<DeviceSample>,
    /// The variables that held its arrays then, those that held most first.
    pub array_holders: Vec<ArrayHolder>,
}

impl ProcessState {
    /// Reads what [`ProcessState::write`] wrote; nothing where there is no such file.
    pub fn read(path: &Path) -> Option<ProcessState> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// Writes it as JSON, for the process that started this one.
    ///
    /// # Errors
    /// That of the system.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, serde_json::to_vec(self)?)
    }

    /// Returns the pool that had most in use; none where no allocator keeps figures.
    pub fn fullest_pool(samples: &[DeviceSample]) -> Option<DeviceSample> {
        let available = samples.iter().filter(|sample| sample.status == StatsStatus::Available);
        available.max_by_key(|sample| sample.in_use_bytes).copied()
    }
}
