//! A sample: what `top` shows, records and replays. Plain values.

use serde::{Deserialize, Serialize};
use vramfit_model::host::{Host, Process};
use vramfit_model::published::{DeviceSample, LiveStats, Liveness, PublishedDevice, StatsHeader};

/// The GPUs and processes at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Version of the format.
    pub(super) schema: u32,
    /// Milliseconds since 1970.
    pub(super) at_unix_ms: u64,
    /// What the driver reports; `None` without a driver.
    pub(super) host: Option<Host>,
    /// Why no driver is available.
    pub(super) no_driver: Option<NoDriver>,
    /// Statistics that JAX processes publish.
    pub(super) published: Vec<PublishedStats>,
}

/// Why no driver is available, and what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoDriver {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// The statistics of one JAX process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PublishedStats {
    pub(super) header: StatsHeader,
    pub(super) live: LiveStats,
    pub(super) liveness: Liveness,
    /// Whether its PID is valid in this namespace.
    pub(super) same_namespace: bool,
    /// What `/proc` knows of the process; `None` if it does not exist here.
    pub(super) process: Option<Process>,
}

impl PublishedStats {
    /// Returns what is published of a device and of its pool; defaults for one that the process does not have.
    pub(super) fn device(&self, index: usize) -> (PublishedDevice, DeviceSample) {
        let device = self.header.devices.get(index).cloned();
        let sample = self.live.devices.get(index).copied();
        (device.unwrap_or_default(), sample.unwrap_or_default())
    }
}

/// The version of [`Sample`] that is written.
pub(super) const SCHEMA: u32 = 1;
