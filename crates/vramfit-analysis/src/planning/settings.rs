//! Settings of JAX and XLA that a plan changes for the whole process.

use serde::{Deserialize, Serialize};

use crate::allocator::AllocatorKind;
use crate::settings::Options;

/// Settings of the process; `None` leaves what its environment says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanSettings {
    /// Fraction of GPU memory that JAX's pool may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_fraction: Option<f64>,
    /// Whether the pool takes its limit at startup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocate: Option<bool>,
    /// The allocator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<AllocatorKind>,
    /// Whether XLA's own rematerialization pass runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xla_remat: Option<bool>,
    /// Whether XLA's latency-hiding scheduler orders operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_hiding: Option<bool>,
}

impl PlanSettings {
    /// Returns `true` if nothing is changed.
    pub fn is_default(&self) -> bool {
        *self == PlanSettings::default()
    }

    /// Adds the settings to options of the user's, which take precedence.
    pub fn add_to(&self, options: &Options) -> Options {
        let mut options = *options;
        if !options.sets_pool_size() {
            options.fraction = self.memory_fraction;
        }
        options.preallocate = options.preallocate.or(self.preallocate);
        options.allocator = options.allocator.or(self.allocator);
        options.remat = options.remat.or(self.xla_remat);
        options.latency_hiding = options.latency_hiding.or(self.latency_hiding);
        options
    }

    /// Returns the changes, each in a few words.
    pub fn describe(&self) -> Vec<String> {
        let fraction = self.memory_fraction;
        let fraction = fraction.map(|it| format!("raise JAX's memory fraction to {it}"));
        let preallocation = self.preallocate.map(|on| match on {
            true => "let JAX preallocate its pool".to_owned(),
            false => "let JAX's pool grow".to_owned(),
        });
        let allocator = self.allocator;
        let allocator = allocator.map(|kind| format!("use the allocator `{}`", kind.name()));
        let word = |on| if on { "on" } else { "off" };
        let remat = self.xla_remat;
        let remat = remat.map(|on| format!("turn XLA's rematerialization pass {}", word(on)));
        let scheduler = self.latency_hiding;
        let scheduler =
            scheduler.map(|on| format!("turn XLA's latency-hiding scheduler {}", word(on)));
        let pool = fraction.into_iter().chain(preallocation).chain(allocator);
        pool.chain(remat).chain(scheduler).collect()
    }
}
