//! Memory options as plain values, and what they become for one process.

use std::collections::BTreeMap;

use super::budget::GpuMemoryBudget;
use super::version::Version;
use crate::allocator::AllocatorKind;
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// How JAX is to manage memory and start up. `None` leaves an option as the environment has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Fraction of the GPU's memory that the pool may use, above 0 and up to 1.
    pub fraction: Option<f64>,
    /// Bytes that the pool may use.
    pub limit: Option<Bytes>,
    /// Bytes of host memory that the pool of each GPU may use besides the GPU's: unified memory.
    pub spill: Option<Bytes>,
    /// Number of processes among which each GPU is split evenly, 1 to 1024.
    pub processes: Option<u32>,
    /// Bytes to leave free for other processes.
    pub keep_free: Option<Bytes>,
    /// The allocator.
    pub allocator: Option<AllocatorKind>,
    /// Whether the pool takes its limit at startup.
    pub preallocate: Option<bool>,
    /// Whether JAX fails if no GPU is available; `Some(false)` only turns off a default.
    pub require_gpu: Option<bool>,
    /// Whether XLA may rematerialize values when a program does not fit.
    pub remat: Option<bool>,
    /// Whether XLA's latency-hiding scheduler orders the operations of a program.
    pub latency_hiding: Option<bool>,
    /// Whether 64-bit types are enabled.
    pub x64: Option<bool>,
    /// Whether jitted functions are compiled.
    pub jit: Option<bool>,
    /// Number of virtual CPU devices, 1 to 4096.
    pub host_devices: Option<u32>,
}

impl Options {
    /// Returns `true` if an option sets the size of the pool.
    pub fn sets_pool_size(&self) -> bool {
        self.size_options().contains(&true)
    }

    /// Which of the options that set the size of the pool are given; they exclude each other.
    fn size_options(&self) -> [bool; 4] {
        [self.fraction.is_some(), self.limit.is_some(), self.spill.is_some(), self.is_split()]
    }

    /// Returns `true` if the pool is one of several on the GPU, or leaves memory to other processes.
    pub(super) fn is_split(&self) -> bool {
        self.processes.is_some() || self.keep_free.is_some()
    }

    /// Returns `true` if the options cannot be resolved without the size of the GPU.
    pub(super) fn requires_gpu_size(&self) -> bool {
        self.limit.is_some() || self.keep_free.is_some() || self.spill.is_some()
    }

    /// Rejects options that exclude each other or are out of range.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`].
    pub(super) fn check(&self) -> Result<()> {
        let reject = |message: &str, hint: &str| Err(Error::invalid_argument(message).hint(hint));
        if self.size_options().iter().filter(|is_set| **is_set).count() > 1 {
            return reject(
                "the size of the pool is given in more than one way",
                "give one of `fraction`, `limit`, `spill`, or `processes` with `keep_free`",
            );
        }
        match (self.processes, self.host_devices) {
            (Some(0 | 1025..), _) => reject(
                "the number of processes on a GPU is out of range; expected 1 to 1024",
                "give the number of processes, such as `processes=2`",
            ),
            (_, Some(0 | 4097..)) => reject(
                "the number of CPU devices is out of range; expected 1 to 4096",
                "give the number of devices, such as `host_devices=8`",
            ),
            _ => Ok(()),
        }
    }
}

/// What is known about the memory of the GPUs that a process will use.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum GpuBudgets {
    /// Nothing.
    #[default]
    Unknown,
    /// Total bytes of each GPU, and nothing about what else needs memory there.
    TotalOnly(u64),
    /// A budget for each GPU; at least one.
    Known(Vec<GpuMemoryBudget>),
}

/// The process that will read the settings, and how far to go for it.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Its release of JAX. Where that is unknown, names are chosen that every release reads.
    pub jax: Option<Version>,
    /// Returns the value that a variable has in its environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Finds out about its GPUs. Called at most once, and only where the answer matters: it may have to
    /// ask the driver, which takes time.
    pub gpu_budgets: &'a dyn Fn() -> Result<GpuBudgets>,
    /// Whether to call `gpu_budgets` also where it only makes reasons and notes more detailed.
    pub detailed: bool,
    /// Whether to correct values in the environment that JAX ignores or misreads.
    pub repair: bool,
    /// Whether to apply the defaults of `vramfit.jax_memory_fix`.
    pub defaults: bool,
}

impl Default for Target<'_> {
    fn default() -> Self {
        Target {
            jax: None,
            variable: &|_| None,
            gpu_budgets: &|| Ok(GpuBudgets::Unknown),
            detailed: false,
            repair: false,
            defaults: false,
        }
    }
}

/// A variable with a value, and why it has that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Name of the variable.
    pub name: &'static str,
    /// Its value, unquoted.
    pub value: String,
    /// Why, as one clause in lower case without a full stop.
    pub reason: String,
}

/// What options become in one environment, and what to tell the user about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResolvedSettings {
    /// Variables to set; each name once.
    pub set: Vec<Assignment>,
    /// Variables to remove. JAX takes an empty value of each of them as unset.
    pub removed: Vec<&'static str>,
    /// Variables of the environment that take precedence over a default.
    pub kept: Vec<Assignment>,
    /// What else there is to know: clauses in lower case without a full stop.
    pub notes: Vec<String>,
    /// Budget of the GPU with the least memory for a pool, where it was asked for.
    pub budget: Option<GpuMemoryBudget>,
}

impl ResolvedSettings {
    /// Returns the value that a variable is set to, if it is.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.set.iter().find(|assignment| assignment.name == name)?;
        Some(&found.value)
    }

    /// Returns an environment as it is with these settings.
    pub fn apply_to(
        &self,
        environment: impl Iterator<Item = (String, String)>,
    ) -> BTreeMap<String, String> {
        let kept = environment.filter(|(name, _)| !self.removed.contains(&name.as_str()));
        let set = self.set.iter().map(|set| (set.name.to_owned(), set.value.clone()));
        kept.chain(set).collect()
    }

    /// Returns `true` if the environment stays as it is.
    pub fn changes_nothing(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }
}
