//! What settings, by the environment of the process or by its log, and the release mean for the pool.

use super::log::Log;
use super::message::{HostFailure, Message};
use super::process_state::ProcessState;
use crate::allocator::{AllocatorKind, JaxVersion, PoolOptions};
use crate::settings::{
    self, ALLOCATOR, DEFAULT_FRACTION, FRACTION, OLD_FRACTION, PREALLOCATE, UNIFIED_MEMORY,
    Version, turns_preallocation_off,
};

/// The default fraction before jaxlib 0.4.14.
const OLD_DEFAULT_FRACTION: f64 = 0.9;
const DEFAULT_CHANGED: JaxVersion = (0, 4, 14);
/// Figures beyond these are misread, or of a damaged log.
const MAX_READ_FRACTION: f64 = 1000.0;
const MAX_TOTAL_BYTES: u64 = 1 << 50;

/// The settings of the pool. `None` where nothing tells them.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolSettings {
    /// The fraction.
    pub(super) fraction: Option<f64>,
    /// Whether the pool is preallocated.
    pub(super) preallocate: Option<bool>,
    /// The allocator.
    pub(super) allocator: Option<AllocatorKind>,
    /// Whether unified memory is on.
    pub(super) unified_memory: bool,
    /// The release, where anything tells it.
    jax: Option<JaxVersion>,
    is_old_release: bool,
    /// Whether they are those of the process itself: what is not set has its default.
    pub(super) is_of_process: bool,
}

impl PoolSettings {
    /// Reads the settings of the process, or else of its log, of which the last value of each counts.
    pub(super) fn read(
        log: &Log,
        process: Option<&ProcessState>,
        jax: Option<JaxVersion>,
    ) -> PoolSettings {
        let mut read =
            PoolSettings { jax, is_of_process: process.is_some(), ..PoolSettings::default() };
        read.is_old_release = log.has(|message| *message == Message::OldRelease);
        let names = [OLD_FRACTION, FRACTION, PREALLOCATE, ALLOCATOR, UNIFIED_MEMORY];
        for (name, value) in process.iter().flat_map(|process| {
            names.iter().filter_map(|name| process.environment.get_key_value(*name))
        }) {
            read.set(name, value);
        }
        for (_, message) in log.messages() {
            match message {
                Message::AsyncRefusal { .. } => read.allocator = Some(AllocatorKind::CudaAsync),
                Message::Host { how: HostFailure::UnifiedRefused, .. } => {
                    read.unified_memory = true;
                }
                Message::Setting { name, value } if process.is_none() => read.set(name, value),
                _ => {}
            }
        }
        read
    }

    fn set(&mut self, name: &str, value: &str) {
        match name {
            FRACTION if !self.reads_fraction() => {}
            FRACTION | OLD_FRACTION => {
                let is_fraction = |value: &f64| *value > 0.0 && *value <= MAX_READ_FRACTION;
                let parsed = value.parse().ok().filter(is_fraction);
                self.fraction = parsed.or(self.fraction);
            }
            PREALLOCATE => self.preallocate = Some(!turns_preallocation_off(value)),
            ALLOCATOR => self.allocator = value.parse().ok().or(self.allocator),
            UNIFIED_MEMORY => self.unified_memory = !matches!(value, "false" | "0" | "False"),
            _ => {}
        }
    }

    /// Returns `true` if the release reads [`FRACTION`]: old ones have [`OLD_FRACTION`] only.
    fn reads_fraction(&self) -> bool {
        let is_read = |(major, minor, patch)| {
            let setting = settings::find(FRACTION);
            setting.is_none_or(|setting| setting.is_read_by(Version::new(major, minor, patch)))
        };
        !self.is_old_release && self.jax.is_none_or(is_read)
    }

    /// Returns the name of the fraction that the release reads.
    pub(super) fn fraction_name(&self) -> &'static str {
        if self.reads_fraction() { FRACTION } else { OLD_FRACTION }
    }

    /// Returns `true` if the allocator takes a pool, of which fraction and preallocation decide the size.
    pub(super) fn has_pool(&self) -> bool {
        matches!(self.allocator.unwrap_or(AllocatorKind::Bfc), AllocatorKind::Bfc)
    }

    /// Returns the fraction that JAX has by default.
    fn default_fraction(&self) -> f64 {
        let is_old = self.is_old_release || self.jax.is_some_and(|jax| jax < DEFAULT_CHANGED);
        if is_old { OLD_DEFAULT_FRACTION } else { DEFAULT_FRACTION }
    }

    /// Returns the fraction in force, by default where nothing tells another.
    pub(super) fn fraction_in_force(&self) -> f64 {
        self.fraction.unwrap_or_else(|| self.default_fraction())
    }

    /// Returns the fraction in force, where it is certain: a log may leave out that it was set.
    pub(super) fn certain_fraction(&self) -> Option<f64> {
        self.fraction.or_else(|| self.is_of_process.then(|| self.default_fraction()))
    }

    /// Returns what names the settings.
    pub(super) fn source(&self) -> &'static str {
        if self.is_of_process { "its environment" } else { "the log" }
    }

    /// Returns the limit of a pool with this fraction of a GPU.
    pub(super) fn limit_bytes(&self, total_memory_bytes: u64, fraction: f64) -> u64 {
        // A client gets the fraction through a 32-bit number.
        let memory_fraction = f64::from(fraction as f32);
        let total_memory_bytes = total_memory_bytes.min(MAX_TOTAL_BYTES);
        let options = PoolOptions { total_memory_bytes, memory_fraction, ..PoolOptions::default() };
        match self.jax {
            Some(jax_version) => PoolOptions { jax_version, ..options }.limit_bytes(),
            None => options.limit_bytes(),
        }
    }
}
